"""The reference and the operators' pages name everything that there is, and nothing that there is not."""

import inspect
import re
from datetime import timedelta
from pathlib import Path

import documented
import pytest
from documented import code, first_code, page, rows, section
from rights import PROFILES, least_rights, sentinel_rights
from servers import command, redis_binaries

import lock_interceptor
from lock_interceptor import LockSettings, metrics
from lock_interceptor.dev import RedisServer
from lock_interceptor.lease import Lease
from lock_interceptor.worker.failures import to_application_error

REFERENCE = page("reference.md")
OPERATING = page("operating.md")
DEPLOYING = page("deploying.md")
MIGRATING = page("migrating.md")
PAGES = {
    "reference": REFERENCE,
    "operating": OPERATING,
    "deploying": DEPLOYING,
    "migrating": MIGRATING,
}
COMMANDS = documented.commands()


def test_every_setting_is_documented() -> None:
    """Each setting has a row with its variables, all of them, and the argument; there are no other rows."""
    table = rows(section(REFERENCE, "Settings"))

    assert {code(row[1])[0]: set(code(row[0])) for row in table} == documented.variables()


def test_the_documented_defaults_are_the_ones_in_force() -> None:
    """A default that is a plain value stands in the table as it is."""
    shown = {code(row[1])[0]: row[2] for row in rows(section(REFERENCE, "Settings"))}
    for name, field in LockSettings.model_fields.items():
        default = field.default
        if default is None or default == ():
            assert shown[name] == "" or name in ("max_waiters", "durability")
        elif isinstance(default, timedelta):
            assert shown[name] == f"{default.total_seconds():g}"
        elif isinstance(default, bool):
            assert shown[name] == f"`{str(default).lower()}`"
        else:
            assert shown[name].strip("`") == str(default)


def test_every_variable_that_a_page_exports_exists() -> None:
    """Whoever copies an ``export`` or a row of a table sets something that is read."""
    known = set().union(*documented.variables().values())
    for text in (REFERENCE, OPERATING, DEPLOYING):
        named = re.findall(r"\b((?:REDIS|LOCK|APPLICATION|ATLAN|IS)_[A-Z_]+[A-Z])\b", text)
        assert set(named) <= known


def test_needs_lock_and_lease_are_documented() -> None:
    """Each argument of the decorator and each attribute of a lease has its place, and no other."""
    arguments = [name for name in inspect.signature(lock_interceptor.needs_lock).parameters if name != "fn"]
    public = {name for name in dir(Lease) if not name.startswith("_")} | {"name", "key", "token", "slot"}
    internal = {"extend", "lose", "end", "show", "watch", "for_other_process"}

    assert [code(row[0])[0] for row in rows(section(REFERENCE, "`needs_lock`"))] == arguments
    named = {each.rstrip("()") for row in rows(section(REFERENCE, "`Lease`")) for each in code(row[0])}
    assert named == public - internal


def test_every_error_is_documented() -> None:
    """Each error that a workflow can meet has a row that says truly whether it is retried."""
    table = first_code(section(REFERENCE, "Errors"))

    assert set(table) == documented.error_names()
    for name, row in table.items():
        failure = to_application_error(getattr(lock_interceptor, name)("why"))
        assert row[1].startswith("no" if failure.non_retryable else "yes")


def test_every_log_event_is_documented() -> None:
    """Each event has a row with its level and with the keys that it alone has, and there are no other."""
    table = first_code(section(REFERENCE, "Log events"))
    logged = documented.log_events()
    said = {name: ({row[1]}, set(code(row[2]))) for name, row in table.items()}
    of_the_activity = {"activity"}

    assert said == {name: (levels, keys - of_the_activity) for name, (levels, keys) in logged.items()}


def test_every_metric_is_documented() -> None:
    """Each metric has a row with its kind and the values of its label, and there are no other."""
    table = first_code(section(REFERENCE, "Metrics"))

    assert {name: row[1] for name, row in table.items()} == {each.name: each.kind for each in metrics.ALL}
    for metric in metrics.ALL:
        assert set(metric.reasons) <= set(code(table[metric.name][2]))
    labels = re.search(r"^Labels: ([^;]+);", section(REFERENCE, "Metrics"), re.MULTILINE)
    assert labels is not None
    assert tuple(code(labels[1])) == metrics.LABELS


def test_every_reason_of_a_loss_has_a_remedy() -> None:
    """Whoever finds a reason at the metric finds what to do about it."""
    table = [row for row in rows(section(OPERATING, "LockLost")) if len(row) == 3]

    assert {code(row[0])[0] for row in table} == set(metrics.LOST.reasons)
    assert all(row[2] for row in table)


def test_every_span_event_is_documented() -> None:
    """Each event has a row with its attributes, and there are no other."""
    table = first_code(section(REFERENCE, "Span events"))
    told = documented.span_events()

    assert set(table) == set(told)
    for name, attributes in told.items():
        assert attributes <= set(code(table[name][1]))


def test_every_command_is_documented() -> None:
    """Each sub-command has a heading of its own, and there are no other."""
    headings = re.findall(r"^### `lock-interceptor (\w+)`$", REFERENCE, re.MULTILINE)

    assert sorted(headings) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented(name: str) -> None:
    """Each argument and option, in each of its spellings, has a row under its command; there are no other."""
    text = section(REFERENCE, f"`lock-interceptor {name}`")
    there = set()
    for parameter in COMMANDS[name]:
        argument = parameter.param_type_name == "argument"
        there |= {"NAME"} if argument else set(parameter.opts)
    listed = {each.split(" ")[0] for row in rows(text) for each in code(row[0])}

    assert listed == there


def test_every_exit_status_is_documented() -> None:
    """The table has the statuses that the command line ends with, and no other."""
    table = rows(section(REFERENCE, "Command line").split("\n### ")[0])

    assert [int(row[0]) for row in table] == sorted(documented.exit_statuses())


def test_every_check_of_the_doctor_is_documented() -> None:
    """Each check that a finding can be about has a row, and there are no other."""
    source = "\n".join(
        path.read_text("utf-8") for path in (documented.PACKAGE / "redis_store" / "checkup").glob("*.py")
    )
    made = re.findall(r'(?:Finding|found)\(\s*"(\w+)",', source)
    chosen = re.findall(r'Finding\("(\w+)" if report\.reached else "(\w+)"', source)
    also = re.findall(r'Finding\("(\w+)" if refused else "(\w+)"', source)

    assert set(first_code(section(REFERENCE, "What `doctor` checks"))) == {
        *made,
        *(name for pair in (*chosen, *also) for name in pair),
    }


def test_every_alert_has_its_remedy() -> None:
    """Each alert has a row with its severity and what to do, and there are no other."""
    table = [row for row in rows(section(OPERATING, "Dashboard and alerts")) if len(row) == 4]

    assert {code(row[0])[0]: row[1] for row in table} == documented.alerts()
    assert all(row[2] and row[3] for row in table)


def test_every_error_and_event_that_a_page_names_exists() -> None:
    """Pages in prose do not speak of events, metrics and errors that are no more."""
    events = set(documented.log_events()) | set(documented.span_events())
    errors = documented.error_names() | {"LockError"} | set(lock_interceptor.__all__)
    for text in PAGES.values():
        named = set(code(text))
        assert {each for each in named if re.fullmatch(r"lock\.\w+", each)} <= events
        assert {each for each in named if each.startswith("lock_interceptor_")} <= {
            metric.name for metric in metrics.ALL
        }
        assert {each for each in named if re.fullmatch(r"Lock[A-Z]\w+", each)} <= (
            errors | set(documented.alerts())
        )


def documented_rules() -> dict[str, list[str]]:
    """The rules for users at Redis on the page, by the comment above them."""
    (block,) = (
        block
        for block in re.findall(r"```text\n(.*?)```", DEPLOYING, re.DOTALL)
        if "SETUSER locks >password" in block
    )
    parts = [part.split("\n", 1) for part in block.strip().split("# ")[1:]]
    return {title: " ".join(text.split()).split(" ")[4:] for title, text in parts}


def test_the_rights_on_the_page_are_the_least_ones() -> None:
    """The page grants, for each profile, what ``test_acl.py`` proves to be enough and needed."""
    expected: dict[str, list[str]] = {each: least_rights(profile=each, database=False) for each in PROFILES}
    for each in PROFILES[1:]:
        title = f"{each} in a Cluster, at each node"
        expected[title] = least_rights(profile=each, cluster=True, database=False)
    expected["at each Sentinel, for REDIS_SENTINEL_USERNAME"] = sentinel_rights()

    found = documented_rules()
    assert list(found) == list(expected)
    for title, rules in found.items():
        assert sorted(rules) == sorted(expected[title]), title


@pytest.mark.parametrize("binary", redis_binaries().values(), ids=redis_binaries())
def test_servers_take_the_configuration_on_the_page(binary: Path) -> None:
    """What the page says for ``redis.conf`` starts a server, of each kind, and is in force there."""
    fragments = re.findall(r"```text\n# redis\.conf.*?\n(.*?)```", DEPLOYING, re.DOTALL)
    plain = [fragment for fragment in fragments if "tls-" not in fragment]
    assert len(plain) == 2
    for fragment in plain:
        with RedisServer(binary=binary) as server:
            for line in fragment.splitlines():
                name, value = line.split()
                command(server, "CONFIG", "SET", name, value)
                assert command(server, "CONFIG", "GET", name)[1] == value


def test_servers_take_the_rules_on_the_page() -> None:
    """Each line of rights is one that a server understands; ``SENTINEL`` is known to Sentinels alone."""
    with RedisServer() as server:
        for title, rules in documented_rules().items():
            if "Sentinel" in title:
                continue
            assert command(server, "ACL", "SETUSER", "locks", ">password", *rules) == "OK"
