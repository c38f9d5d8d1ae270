"""What the environments themselves do: tables with a sentinel, a judge that waits for all, a directory that holds nothing."""

import json

import pytest

from ckptctl.errors import UsageError
from ckptctl.sim import genrm, workplace
from ckptctl.sim.cluster import require_playable
from ckptctl.sim.cluster_options import ClusterOptions
from ckptctl.sim.controller_settings import ControllerSettings
from ckptctl.sim.directory import Directory
from ckptctl.sim.environments import KINDS, SERVERS, require_kind, require_server, servers_of
from ckptctl.sim.outcome import Call
from ckptctl.sim.policy_text import PolicyTurn, function_output
from ckptctl.sim.promises import PROMISES
from ckptctl.sim.resources import create_resources_app
from ckptctl.sim.run_config import agent_names, run_config
from ckptctl.sim.run_history import Mutation
from ckptctl.sim.settings import ResourcesSettings
from ckptctl.sim.tasks import agent_of, environment_of, granularity_of

WHO = "g_g0"


def play(kind, environment, parameters, rollout=WHO):
    """Play one rollout against the environment itself: (state, number of turns)."""
    state = None
    if kind.seeds:
        state = environment.call(Call("seed_session", {"parameters": parameters}, None, rollout)).state
    items, turn = [], 0
    while not items or items[-1].get("role") != "assistant":
        said = kind.script(PolicyTurn(7, rollout, turn, tuple(items), parameters))
        calls = [item for item in said if item.get("type") == "function_call"]
        outputs = []
        for item in calls:
            server = Directory() if item["name"] in kind.elsewhere else environment
            outcome = server.call(Call(item["name"], json.loads(item["arguments"]), state, rollout))
            assert outcome.status == 200, outcome
            state = outcome.state if item["name"] not in kind.elsewhere else state
            outputs.append(function_output(item, "done"))
            if item["name"] == kind.ends_with:
                return state, turn + 1
        items += [*said, *outputs]
        turn += 1
    return state, turn


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 9])
def test_a_rollout_of_workplace_earns_its_reward(steps) -> None:
    """Every step of the plan once, the sentinel event among them."""
    kind, environment = KINDS["workplace"], SERVERS["workplace"].create()
    state, _ = play(kind, environment, {"steps": steps})
    verdict = environment.call(Call("verify", {}, state, WHO))

    assert 1 == workplace.plan_of(steps).count("create_event")
    assert (1.0, []) == (verdict.body["reward"], verdict.body["problems"])
    assert ["weekly review", f"sentinel {WHO}"] == [row["title"] for row in state["calendar"]]


def test_what_workplace_does_not_let_pass() -> None:
    """A sentinel twice or never, a row twice, somebody else's event, a changed standing event: no reward, and why."""
    kind, environment = KINDS["workplace"], SERVERS["workplace"].create()
    state, _ = play(kind, environment, {"steps": 5})
    standing, sentinel = state["calendar"]
    mails = state["mails"]
    cases = {
        "the sentinel event is there 2 times": {"calendar": [standing, sentinel, sentinel]},
        "the sentinel event is there 0 times": {"calendar": [standing]},
        "the standing events were changed": {"calendar": [{**standing, "at": "tue"}, sentinel]},
        "mails: the rows are": {"mails": [*mails, mails[0]]},
    }
    found = {
        text: environment.call(Call("verify", {}, {**state, **change}, WHO)).body for text, change in cases.items()
    }

    for text, body in found.items():
        assert body["reward"] == 0.0
        assert any(problem.startswith(text) for problem in body["problems"]), body
    assert environment.call(Call("verify", {}, state, "other_g0")).body["reward"] == 0.0


@pytest.mark.parametrize(
    ("route", "body", "has_session"),
    [
        ("seed_session", {"parameters": {"steps": 0}}, False),
        ("create_event", {"ref": 1}, True),
        ("send_mail", {}, True),
        ("verify", {}, False),
        ("search_events", {}, False),
    ],
)
def test_calls_that_workplace_refuses(route, body, has_session) -> None:
    """Columns that are not given, a session that was not seeded: an answer that changes nothing."""
    environment = SERVERS["workplace"].create()
    state = environment.call(Call("seed_session", {"parameters": {"steps": 2}}, None, WHO)).state

    assert environment.call(Call(route, body, state if has_session else None, WHO)).status in (404, 422)


def test_a_group_is_scored_when_all_have_registered() -> None:
    """Until then a verdict says so and verifying is refused; rewards follow from the answers, whoever came first."""
    judges = [SERVERS["genrm"].create() for _ in range(2)]
    names = [f"g_g{index}" for index in range(3)]
    rewards = []
    for judge, order in zip(judges, (names, names[::-1]), strict=True):
        states = {}
        for name in order:
            states[name], turns = play(KINDS["genrm"], judge, {"steps": 3, "siblings": 3}, name)
            ready = judge.call(Call("verdict", {}, states[name], name)).body["ready"]
            assert (3, len(states) == 3) == (turns, ready)
            assert (200 if ready else 409) == judge.call(Call("verify", {}, states[name], name)).status
        rewards.append({name: judge.call(Call("verify", {}, states[name], name)).body for name in names})

    assert rewards[0] == rewards[1]
    assert [0.0, 0.5, 1.0] == sorted(body["reward"] for body in rewards[0].values())


def test_a_sibling_that_registers_again_replaces_its_answer() -> None:
    """Another attempt of the same rollout is the same sibling; groups do not mix; a lone answer is the best."""
    judge = SERVERS["genrm"].create()
    for name in ("g_g0", "g_g0", "h_g0"):
        judge.call(Call("register", {"answer": "x", "siblings": 2}, None, name))

    assert not judge.call(Call("verdict", {}, {"answer": "x"}, "g_g0")).body["ready"]
    assert 422 == judge.call(Call("register", {"answer": "x"}, None, "g_g1")).status
    assert {"only": 1.0} == genrm.rewards_of({"only": "x"})


def test_the_directory_answers_from_the_name_alone() -> None:
    """The same name, the same answer, from any process."""
    answers = [Directory().call(Call("lookup", {"name": "opal"})).body for _ in range(2)]

    assert answers[0] == answers[1]
    assert 422 == Directory().call(Call("lookup", {"name": ""})).status


@pytest.mark.parametrize(
    ("name", "mode", "contract"),
    [
        ("counter", "export_restore", "serialized_per_session"),
        ("genrm", "restart_only", "serialized_per_session"),
        ("directory", "stateless", "stateless"),
    ],
)
def test_what_servers_say_of_themselves(tmp_path, name, mode, contract) -> None:
    """Capabilities tell the mode; only an exporting server has checkpoint routes, and can be told to wait for a restore."""
    settings = ResourcesSettings(name=name, environment=name, port=0, run_dir=str(tmp_path), restore_expected=True)
    server = create_resources_app(settings, "token")
    paths = {getattr(route, "path", "") for route in server.app.routes}
    server.service.audit.close()
    exports = mode == "export_restore"

    assert (mode, contract) == (SERVERS[name].checkpoint_mode, contract)
    assert exports == ("/ng-control/v1/resources-checkpoint/prepare" in paths)
    assert exports != server.service.checkpoint.is_open


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"environments": ("chess",)}, "no environment `chess`"),
        ({"environments": ("directory",)}, "no environment `directory`"),
        ({"environments": ("counter", "counter")}, "named twice"),
        ({"turns": 1023}, "1,024 at most, so a rollout may ask for 1,022"),
        ({"environments": ("workplace",), "turns": 5000}, "cannot take 5000 turns"),
        ({"environments": ("genrm",), "generations": 9}, "no group would ever be finished"),
    ],
)
def test_runs_that_would_never_end_are_refused(changes, text) -> None:
    """Told before a process is started, with the reason."""
    with pytest.raises(UsageError, match=text):
        require_playable(ClusterOptions(**changes))


def test_limits_that_can_just_be_met() -> None:
    """The most that fits is allowed; an environment without sessions has no such limit."""
    require_playable(ClusterOptions(turns=1022))
    require_playable(ClusterOptions(environments=("genrm",), turns=5000, generations=8))


def test_who_plays_what() -> None:
    """Prompts go to the environments in turn, and to the agents so that each plays all of them."""
    options = ClusterOptions(environments=("counter", "genrm"), agents=2)
    settings = ControllerSettings(
        port=0, run_dir="/r", config_path="/c", agents={"a": "http://a"}, environments=options.environments
    )
    played = [(environment_of(settings, row), agent_of(settings, row, ["a", "b"])) for row in range(4)]

    assert [("counter", "a"), ("genrm", "a"), ("counter", "b"), ("genrm", "b")] == played
    assert ("sibling", "prompt_group") == (granularity_of(settings, "counter"), granularity_of(settings, "genrm"))
    assert ("simple_agent", "simple_agent_2") == agent_names(options)
    assert ("counter", "genrm", "directory") == servers_of(options.environments)


def test_the_configuration_names_every_server_and_what_must_be_restarted_whole() -> None:
    """One section per server; the judge's groups are restarted as a whole, whatever the default is."""
    options = ClusterOptions(environments=("workplace", "genrm"))
    config = run_config("/r", options, {"controller": "http://c", "genrm": "http://g"})

    assert {"policy_model", "simple_agent", "workplace", "genrm", "directory"} == set(config["env"]["nemo_gym"])
    assert {"genrm-tasks": "prompt_group"} == config["rollout_recovery"]["task_source_granularity_overrides"]
    assert "ckptctl/workplace+genrm-tasks" == config["data"]["train"]["dataset_name"]


@pytest.mark.parametrize("require", [require_kind, require_server])
def test_names_that_there_are_not(require) -> None:
    """The message lists what there is."""
    with pytest.raises(ValueError, match="`chess`; there are: counter, "):
        require("chess")


def created(count: int) -> list[Mutation]:
    return [Mutation("workplace", revision + 2, 0, "create_event") for revision in range(count)]


def test_what_workplace_promises() -> None:
    """Tables, reward and audit log: each alone is not believed."""
    state, _ = play(KINDS["workplace"], SERVERS["workplace"].create(), {"steps": 3})
    result = {"rollout_id": WHO, "final_state": state, "reward": 1.0}
    check = PROMISES["workplace"]

    assert [] == list(check(result, created(1)))
    assert ["the audit log has 2 created events, not one"] == list(check(result, created(2)))
    assert ["the reward is 0.0"] == list(check({**result, "reward": 0.0}, created(1)))
    assert "the sentinel event is there 0 times" in list(check({**result, "rollout_id": "x_g0"}, created(1)))


def test_what_genrm_promises() -> None:
    """Judged among its siblings and nobody else, for what the answers are worth, after one registration."""
    answers = {"g_g0": "a", "g_g1": "b"}
    result = {
        "group_id": "g",
        "rollout_id": WHO,
        "final_state": {"answers": answers},
        "reward": genrm.rewards_of(answers)[WHO],
    }
    once = [Mutation("genrm", 1, 0, "register")]
    check = PROMISES["genrm"]
    strangers = {**result, "final_state": {"answers": {**answers, "h_g0": "c"}}}

    assert [] == list(check(result, once))
    assert ["it was judged among ['g_g0', 'g_g1', 'h_g0']"] == list(check(strangers, once))
    assert "the audit log has 0 registrations, not one" in list(check(result, []))
    assert "not what its answer is worth" in next(check({**result, "reward": 0.25}, once))
