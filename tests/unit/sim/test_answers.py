"""Answers of the embedded cluster for people: nothing of a path or a name acts on a terminal or begins a line of its own."""

from ckptctl.sim.account import Account
from ckptctl.sim.answers import ClusterAnswer, DemoAnswer, FaultAnswer, ProcessStatus, run_line
from ckptctl.sim.equivalence import Comparison
from ckptctl.sim.fault_order import Planted

HOSTILE = "/run \x1b[2J\u202e\nforged: line"


def test_a_path_is_only_a_path():
    """Wherever the directory stands in an answer."""
    cluster = ClusterAnswer.model_construct(
        run_dir=HOSTILE, config=f"{HOSTILE}/run.yaml", incarnation=1, processes=(), restore_expected=False, run=None
    )
    fault = FaultAnswer.model_construct(server=HOSTILE, faults=[{"kind": HOSTILE, "operation": HOSTILE, "times": 1}])
    demo = DemoAnswer.model_construct(proved=[HOSTILE], failure=HOSTILE, comparison=None)
    texts = [cluster.text(), fault.text(), FaultAnswer.model_construct(server=HOSTILE, faults=[]).text(), demo.text()]

    for text in texts:
        assert not set("\x1b\u202e") & set(text)
        assert not [line for line in text.splitlines() if line.startswith("forged")]
        assert "/run \\x1b[2J\\u202e\\x0aforged: line" in text


def test_problems_of_a_run_stay_on_their_lines():
    """One line each."""
    run = {
        "finished_groups": 1, "goal_groups": 2, "unfinished_groups": 0, "in_flight": 0, "is_admission_open": True,
        "train_step": 0, "problems": [HOSTILE],
    }  # fmt: skip

    assert 2 == len(run_line(run).splitlines())


def test_a_planted_session_is_told():
    """It is no order that is left, so without a line of its own nothing would say that it is there."""

    def told(**facts):
        planted = Planted(rollout_id="g0_g0", attempt_index=1, **facts)
        return FaultAnswer(server="counter", faults=[], planted=planted).text()

    assert "`counter` has an orphan session now: `g0_g0` attempt 1\n" == told(kind="orphan_session", is_new=True)
    assert "`counter` has an uncertain session now: `g0_g0` attempt 1\n" == told(kind="uncertain_session", is_new=False)
    assert told(kind="uncertain_session", is_new=True).endswith("attempt 1, made for this\n")
    assert "`counter` has no faults left\n" == FaultAnswer(server="counter", faults=[]).text()


def test_a_clock_fault_lasts():
    """Whatever its count says."""
    order = {"kind": "clock", "operation": "*", "times": 1, "delay_s": -3.0}

    assert "  clock off by -3 s, until cleared" in FaultAnswer(server="counter", faults=[order]).text().splitlines()


def test_a_cluster_says_what_comes_next():
    """A command that can be typed as it stands, wherever the run lies."""
    process = {
        "name": "counter",
        "role": "resources",
        "pid": 1,
        "is_alive": False,
        "url": "http://127.0.0.1:1",
        "phase": None,
    }
    place = {"run_dir": "/my runs/a", "config": "/my runs/a/ckptctl.yaml", "checkpoint_dir": "/my runs/a/checkpoints"}
    run = {
        "finished_groups": 0, "goal_groups": 0, "unfinished_groups": 0, "in_flight": 0, "is_admission_open": True,
        "train_step": 0, "problems": [], "restore_expected": False,
    }  # fmt: skip
    ended = ClusterAnswer.model_validate({**place, "incarnation": 1, "restore_expected": True, "processes": [process]})
    begun = ended.model_copy(update={"processes": [ProcessStatus(**{**process, "is_alive": True})], "run": run})

    assert "fresh processes: `ckptctl sim restart --dir '/my runs/a'`\n" in ended.text()
    assert "it waits for a restore: `ckptctl restore --config '/my runs/a/ckptctl.yaml'`\n" in begun.text()
    assert "no goal yet: `ckptctl sim run --dir '/my runs/a'` draws prompts\n" in begun.text()


def test_one_of_a_kind_is_singular():
    """`1 difference`, `1 rollout in 1 group`."""
    found = Comparison(
        environment="counter", equal=False, rollouts=1, groups=1, mutations={"increment": 1}, restores=0,
        kept_groups=0, account=Account(), differences=["g0: another reward"], differences_total=1,
    )  # fmt: skip

    assert (
        "counter: 1 rollout in 1 group\n1 mutation: 1 increment\n  g0: another reward\nthe runs differ: 1 difference\n"
        == found.text()
    )
