"""Secrets in longer texts are masked, and nothing else of the text is hidden."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate._capture.context import Rules, capture, describe_error
from toolgate._capture.redaction import SecretRule, scrub
from toolgate._capture.serializer import Fingerprinter

HIDER = Fingerprinter("ak_" + "q" * 37)
LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDKabcd+/efghij"


def shown(value: object, rules: Rules | None = None) -> Any:
    return capture({"value": value}, rules or Rules(), HIDER).context["value"]


def visible(text: str) -> str:
    found = shown(text)
    if isinstance(found, str):
        return found
    return str(found["$redacted"])


def test_only_the_secret_of_a_text_is_masked_and_the_whole_text_is_bound() -> None:
    text = "curl https://api.example.com/users -X DELETE # token=aaaa"
    assert shown(text) == {
        "$redacted": "curl https://api.example.com/users -X DELETE # token=[redacted]",
        **HIDER.text(text),
    }
    other = text.replace("aaaa", "bbbb")
    assert shown(other)["$redacted"] == shown(text)["$redacted"]
    assert shown(other)["$digest"] != shown(text)["$digest"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a password=hunter22 b token=abcd c", "a password=[redacted] b token=[redacted] c"),
        ("password=token=abcd", "password=[redacted]"),
        ("Authorization: Bearer sk-proj-abcdefghijklmnop x", "Authorization: Bearer [redacted] x"),
        ("PASSWORD=hunter22\nTOKEN=abcd\nrm -rf /", "PASSWORD=[redacted]\nTOKEN=[redacted]\nrm -rf /"),
        ("token=abcd\\\nefgh; ls", "token=[redacted]; ls"),
        ("postgres://bob:hunter22@db/shop?x=1", "postgres://bob:[redacted]@db/shop?x=1"),
        ("postgres://bob:p@ss@db/shop", "postgres://bob:[redacted]@db/shop"),
        ("curl -u bob:hunter22 https://a.example", "curl -u bob:[redacted] https://a.example"),
        ("login --password hunter22 --force", "login --password [redacted] --force"),
        ("db.connect(password='correct horse')", "db.connect(password='[redacted]')"),
        ("pay 4111 1111 1111 1111 now", "pay [redacted] now"),
        ("sk-proj-abcdefghijklmnop,ghp_abcdefghijklmnop", "[redacted],[redacted]"),
        ('{"to": "x", "password": "a; b\\"c"}', '{"to": "x", "password": "[redacted]"}'),
        ('{"a": {"pin": 1234, "x": 1}}', '{"a": {"pin": [redacted], "x": 1}}'),
        ('{"credentials": {"user": "b", "n": [1]}, "x": 1}', '{"credentials": [redacted], "x": 1}'),
        ('{"body": "{\\"password\\": \\"hunter22\\"}"}', '{"body": "{\\"password\\": \\"[redacted]\\"}"}'),
        (
            f"x\n-----BEGIN PRIVATE KEY-----\n{LINE}\nab12==\n-----END PRIVATE KEY-----\nrm -rf /",
            "x\n-----BEGIN PRIVATE KEY-----\n[redacted]\n[redacted]\n-----END PRIVATE KEY-----\nrm -rf /",
        ),
        (
            f'{{"k": "-----BEGIN PRIVATE KEY-----\\n{LINE}\\nab12==\\n-----END PRIVATE KEY-----\\n"}}',
            '{"k": "-----BEGIN PRIVATE KEY-----\\n[redacted]\\n[redacted]\\n-----END PRIVATE KEY-----\\n"}',
        ),
    ],
)
def test_secrets_in_longer_texts(text: str, expected: str) -> None:
    assert visible(text) == expected


# Random, as secrets are; not in the form of any known kind of key.
SECRET = "Zx9qLk27PwT4vB1m"
CARD = "4111{0}1111{0}1111{0}1111"


@pytest.mark.parametrize(
    "form",
    [
        "password = {}",
        "password: {}",
        "Password:{}",
        "secret: {}",
        "client_secret: {}",
        "pwd:{}",
        "pass={}",
        "PASS: {}",
        "api key: {}",
        "API-KEY: {}",
        "authorization={}",
        "password => {}",
        ":password => '{}'",
        "password := {}",
        "password=\t{}",
        "password=''{}''",
        'password=""{}',
        'password="""{}"""',
        "password=({})",
        "password=$'{}'",
        "password=b'{}'",
        'password=f"{}"',
        "password='ab - {}'",
        "<password>{}</password>",
        '<add key="password" value="{}"/>',
        'x {{"password":["{}"]}}',
        'x {{"password": [ "{}"]}}',
        "deploy --client-secret {}",
        "deploy --auth-token {}",
        "deploy --secret-key {}",
        "deploy --db-password {}",
        "deploy --db-password='{}'",
        "Cookie: session={}",
        "Cookie: theme=dark; session={}; lang=en",
        "Set-Cookie: sid={}; Path=/",
        "git clone https://{}@github.com/x",
        'Authorization: Digest username="a", response="{}"',
        "https://store.example/x?sig={}",
        "https://store.example/x?key={}&a=1",
        "https://store.example/x?X-Amz-Signature={}",
        "AccountName=a;AccountKey={}==;",
        "SharedAccessKey={}",
        "sshpass -p {} ssh host",
        "sshpass -p'{}' ssh host",
        "mysql -u root -p{} shop",
        "mysqldump -p{}",
        "redis-cli -h db -a {}",
        "docker login -u bob -p {}",
        "openssl rsa -passin pass:{}",
        "see dop_v1_{}{}",
        "see shpat_7777777777777777 and shpat_{}",
        "see pypi-{}{}",
        "see hvs.{}{}",
        "see lin_api_{}{}",
        "see sq0csp-{}",
    ],
)
def test_secret_in_a_text_is_masked_whatever_stands_before_it(form: str) -> None:
    text = f"run {form.format(SECRET, SECRET)} now"
    seen = visible(text)
    assert SECRET not in seen
    assert seen.startswith("run ")
    assert seen.endswith(" now")
    assert "[redacted]" in seen


@pytest.mark.parametrize("separator", [".", "_", "/", "  ", "-", " "])
def test_card_number_is_masked_however_its_groups_are_separated(separator: str) -> None:
    assert visible(f"pay {CARD.format(separator)} now") == "pay [redacted] now"


@pytest.mark.parametrize(
    "text",
    [
        "token=https://evil.example/x",
        "password: https://evil.example/x1",
        "secret=../../../../bin/sh1",
        "secret=./run1.sh",
        "token=/etc/passwd",
        "token=~/x1/run.sh",
        "token=$HOME/../../etc/passwd",
        "token=evil.example:4444",
        "secret='delete all files in home'",
        'token="drop the table users now please"',
        "sk-delete-all-the-production-data",
        "pk_transfer_all_the_money_to_bob_now",
        "pypi-mirror-of-the-whole-index",
        "the secret: never delete everything in production",
        "Please reset the password: click here",
        "token: 5 items",
        "pass=all",
        "x --no-password reboot --delete-token production",
        "https://docs.example/x?key=title&code=de",
        "https://someone.example@host.example/x",
        "Cookie: theme=dark; lang=en",
        "version 4111.1111.1111.1112 of 10.0.0.1",
        "mysql --port 3306 -e 'select 1'",
        "0.4111111111111111",
    ],
)
def test_text_without_a_secret_stays_visible(text: str) -> None:
    assert shown(text) == text


def test_passphrase_of_many_words_is_masked() -> None:
    text = "passphrase: 'correct horse battery staple again'"
    assert visible(text) == "passphrase: '[redacted]'"


@pytest.mark.parametrize(
    "form",
    [
        "password: {};rm -rf /",
        "password = '{}'; rm -rf /",
        "password=({});rm -rf /",
        "password=b'{}';rm -rf /",
        "pass={}|rm -rf /",
        "<password>{}; rm -rf /</password>",
        "x --db-password {}&& rm -rf /",
        "Cookie: a={}; rm -rf /",
        "Cookie: a={}| rm -rf /",
        "sshpass -p {};rm -rf /",
        "mysql -p{};rm -rf /",
        "redis-cli -a {};rm -rf /",
        "https://x/?sig={};rm -rf /",
        "https://{}@host;rm -rf /",
        "AccountKey={};rm -rf /",
        "see pypi-{};rm -rf /",
        "password='{} - ; rm -rf /'",
        "password='{} - rm -rf /'",
    ],
)
def test_no_command_hides_behind_a_secret_in_another_form(form: str) -> None:
    seen = visible(form.format(SECRET))
    assert SECRET not in seen
    assert "rm -rf /" in seen


@pytest.mark.parametrize(
    "text",
    [
        "token=x;rm -rf /",
        "token=xxxx;rm -rf /",
        "token=xxxx|rm -rf /",
        "token=xxxx&&rm -rf /",
        "token=xxxx\nrm -rf /",
        "token=$(rm -rf /)",
        "token=xxxx$(rm -rf /)",
        "token=xxxx`rm -rf /`",
        "token=xxxx>(rm -rf /)",
        "token='xxxx;rm -rf /'",
        'sh -c "echo token="; rm -rf / ; echo "x"',
        "eval 'env token='a rm -rf /",
        'echo token\\":\\"; rm -rf / ; \\"',
        'echo "token": "; rm -rf /"',
        "--password xxxx;rm -rf /",
        "curl -u bob:xxxx;rm -rf /",
        "Authorization: Bearer abcdefgh1;rm -rf /",
        "bearer\nrm -rf /",
        "-----BEGIN PRIVATE KEY-----; rm -rf / ; echo",
        "-----BEGIN PRIVATE KEY-----\nrm -rf /\n-----END PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{LINE}\n'; rm -rf / #\n-----END PRIVATE KEY-----",
        '{"password": "x"}; rm -rf /',
        '{"password": "x"; rm -rf /',
    ],
)
def test_no_command_hides_behind_a_secret(text: str) -> None:
    assert "rm -rf /" in visible(text)


@pytest.mark.parametrize(
    "text",
    [
        "curl http://a:xxxx;rm${IFS}-rf${IFS}~;@host/",
        "curl http://a:$(rm${IFS}-rf${IFS}~)@host/",
        "token=xxxx${IFS};rm${IFS}-rf${IFS}~",
    ],
)
def test_no_command_without_blanks_hides_behind_a_secret(text: str) -> None:
    assert "rm${IFS}-rf${IFS}~" in visible(text)


@pytest.mark.parametrize("command", ["reboot", "shutdown", "poweroff", "/sbin/reboot"])
@pytest.mark.parametrize(
    "around",
    ["bearer\n{}", "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----", "token=\n{}"],
)
def test_a_command_on_its_own_line_stays_visible(command: str, around: str) -> None:
    assert command in visible(around.format(command))


def test_a_text_that_is_nothing_but_a_secret_is_a_digest() -> None:
    for text in ("4111 1111 1111 1111", "ghp_abcdefghijklmnop", "sk-proj-abcdefghijklmnop"):
        assert shown(text) == HIDER.text(text)


def test_a_value_under_a_secret_name_stays_hidden_as_a_whole() -> None:
    found = capture({"password": "a b # token=aaaa"}, Rules(), HIDER).context
    assert found == {"password": HIDER.text("a b # token=aaaa")}


def test_the_marker_of_a_masked_text_does_not_occur_in_the_text() -> None:
    assert visible("[redacted] and token=abcd") == "[redacted] and token=[redacted 1]"
    assert visible("[redacted][redacted 1] token=abcd") == "[redacted][redacted 1] token=[redacted 2]"
    assert shown("nothing but [redacted]") == "nothing but [redacted]"
    assert "sesame" not in visible("go password=[redacted]sesame")


def test_a_mapping_cannot_pretend_to_be_a_masked_text() -> None:
    assert shown({"$redacted": "ls", "$digest": "x"}) == {"$$redacted": "ls", "$$digest": "x"}


def test_a_secret_in_a_name_is_masked_and_the_name_is_bound() -> None:
    name = "rm -rf / # ghp_aaaaaaaaaaaa"
    found = shown({name: 1})
    assert found == {f"$redacted:rm -rf / # [redacted] {HIDER.text(name)['$digest']}": 1}
    assert shown({name.replace("aaaa", "bbbb"): 1}).keys() != found.keys()


def test_patterns_of_the_tool_mask_what_they_match() -> None:
    rules = Rules(redact={re.compile(r"\bDE[0-9]{20}\b")})
    text = "refund to DE02120300000000202051 today"
    assert shown(text, rules) == {"$redacted": "refund to [redacted] today", **HIDER.text(text)}


def test_a_pattern_that_matches_nothing_visible_hides_the_whole_text() -> None:
    rules = Rules(redact={re.compile("(?=sesame)")})
    assert shown("open sesame", rules) == HIDER.text("open sesame")


def test_a_long_text_with_a_secret_is_a_digest() -> None:
    text = "password=hunter22 " + "x" * 9000
    assert shown(text) == HIDER.text(text)


def test_names_hidden_by_the_tool_are_hidden_in_json_too() -> None:
    text = '{"coupon": "SAVE10", "n": 1}'
    assert shown(text, Rules(redact={"coupon"}))["$redacted"] == '{"coupon": "[redacted]", "n": 1}'


@pytest.mark.parametrize("message", ["bad token aaaa-1234", "'aaaa-1234' was refused"])
def test_a_masked_secret_is_kept_out_of_error_messages(message: str) -> None:
    captured = capture({"command": "curl x # token=aaaa-1234"}, Rules(), HIDER)
    told = describe_error(ValueError(message), captured.hidden, captured.patterns)
    assert told["message"] == message.replace("aaaa-1234", "[redacted]")


def test_an_error_message_keeps_what_stands_around_a_secret() -> None:
    assert scrub("rm failed: password=hunter22; disk full", ()) == "rm failed: password=[redacted]; disk full"


@pytest.mark.parametrize(
    "piece",
    [
        "token='",
        'password="a b',
        '"token": "a b ',
        '\\"token\\": \\"',
        "authorization: 1",
        "x-a-a-a-",
        "--password '",
        "-----BEGIN PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----ab1\n",
        "a://b:c;",
        "a://b:",
        "curl -u a:",
        "basic a",
        "bearer\n",
        "token=[redacted",
        "token=\\\n",
        "1 ",
        "4111 ",
        "e aws_secret_key='",
        "password: ",
        "password = '",
        "pass: b'",
        "<token>a",
        "://a1",
        "?sig=a",
        "a-a-a-signature=",
        "--a-a-a-token ",
        "mysql a -p ",
        "redis-cli -a ",
        "login -p ",
        "sk-a-b-c-d-",
        "4111.1111.",
        "1  ",
        "Cookie: a=1;",
        "; a=1111111111",
        "token=/a",
        "token=a.",
        "secret='a b c d e ",
        "secret='a - ",
    ],
)
def test_masking_takes_linear_time(piece: str) -> None:
    rule = SecretRule()
    text = piece * (100_000 // len(piece))
    began = time.process_time()
    rule.mask(text)
    rule.mask(f'{{"a": "{piece * (30_000 // len(piece))}"}}')
    assert time.process_time() - began < 1


@given(
    st.text(alphabet="ab1;|&$()`'\" \n\\={}:-/@", max_size=60),
    st.sampled_from(
        [
            "token=",
            '"token": "',
            "a://b:",
            "token: ",
            "token=(",
            "Cookie: a=",
            "<token>",
            "sshpass -p ",
            "a://",
            "?sig=",
        ]
    ),
)
def test_what_is_masked_contains_no_separator_of_commands(text: str, before: str) -> None:
    whole = before + text
    masked = SecretRule().mask(whole)
    if masked is None:
        return
    for secret in masked.secrets:
        joined = secret.replace("\\\r\n", "").replace("\\\n", "")
        assert not re.search(r"[;|&`\n]|\$[({]", joined)


@given(st.dictionaries(st.sampled_from(["password", "to", "note"]), st.text(max_size=30), min_size=1))
def test_json_in_a_text_keeps_its_other_members(members: dict[str, str]) -> None:
    found = SecretRule().mask(json.dumps(members))
    if found is not None and found.visible is not None:
        seen = json.loads(found.visible)
        assert seen.keys() == members.keys()
        assert "password" not in members or not members["password"] or seen["password"] == "[redacted]"
