package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

type proofResult struct {
	*checkpoint
	Index int64  `json:"index"`
	Leaf  []byte `json:"leaf"`
}

// checkProof verifies a c2sp.org/tlog-proof@v1 file. The leaf is the extra data
// of the proof, unless it is given in a file of its own.
func checkProof(keys *keys, path, leafPath string) (*proofResult, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	head, signed, ok := strings.Cut(string(text), "\n\n")
	if !ok {
		return nil, fmt.Errorf("no empty line before the checkpoint")
	}
	c, err := keys.open([]byte(signed))
	if err != nil {
		return nil, err
	}

	lines := strings.Split(head, "\n")
	if lines[0] != "c2sp.org/tlog-proof@v1" {
		return nil, fmt.Errorf("unknown format %q", lines[0])
	}
	lines = lines[1:]
	var leaf []byte
	if len(lines) > 0 && strings.HasPrefix(lines[0], "extra ") {
		if leaf, err = base64.StdEncoding.DecodeString(strings.TrimPrefix(lines[0], "extra ")); err != nil {
			return nil, fmt.Errorf("extra data: %w", err)
		}
		lines = lines[1:]
	}
	if leafPath != "" {
		if leaf, err = os.ReadFile(leafPath); err != nil {
			return nil, err
		}
	}
	if len(lines) == 0 || !strings.HasPrefix(lines[0], "index ") {
		return nil, fmt.Errorf("no index")
	}
	number := strings.TrimPrefix(lines[0], "index ")
	index, err := strconv.ParseInt(number, 10, 64)
	if err != nil || strconv.FormatInt(index, 10) != number {
		return nil, fmt.Errorf("invalid index %q", number)
	}
	var proof tlog.RecordProof
	for _, line := range lines[1:] {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			return nil, fmt.Errorf("invalid hash %q: %w", line, err)
		}
		proof = append(proof, hash)
	}
	if err := tlog.CheckRecord(proof, c.tree.N, c.tree.Hash, index, tlog.RecordHash(leaf)); err != nil {
		return nil, err
	}
	return &proofResult{checkpoint: c, Index: index, Leaf: leaf}, nil
}
