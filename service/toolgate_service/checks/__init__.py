"""Checks: may this agent do this now?"""
