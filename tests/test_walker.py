"""The walker: its ordinary game is Gymnasium's, and its courses are as they are written."""
import json
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("Box2D")

from gymnasium.envs.box2d.bipedal_walker import BipedalWalker, BipedalWalkerHeuristics
from states import same

from envgen_nb.agent.checkpoint import load_checkpoint
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.designer.base import DesignerError, Request, make_designer
from envgen_nb.designer.prompt import first_prompt, load_templates
from envgen_nb.designer.reply import read_reply
from envgen_nb.experiment.file import OWN_FOLDER, read_experiment
from envgen_nb.experiment.folder import open_experiment
from envgen_nb.experiment.places import make_place
from envgen_nb.experiment.schedule import forecast
from envgen_nb.extras.cli import _time_expected
from envgen_nb.game.conformance import check_simulator
from envgen_nb.game.simulator import get_simulator
from envgen_nb.game.world import check_world, random_world
from envgen_nb.results.report import write_report
from envgen_nb.simulators import walker
from envgen_nb.simulators.walker import STEP, STEPS, Course, Segment, Walker, WalkerWorld, engine, make_ground
from envgen_nb.studio.play import Play, seen_picture, watched
from envgen_nb.studio.worlds import Worlds, gallery_html, worlds_view


def world(*segments, **settings):
    course = [dict(zip(("kind", "size", "steps"), segment, strict=False)) for segment in segments]
    made, complaints = check_world(WalkerWorld, {"course": course} | settings)
    assert made is not None, complaints
    return made


def test_it_keeps_the_contract():
    check_simulator(get_simulator("walker"), length=6)


@pytest.mark.parametrize("seed", range(40))
def test_the_ordinary_terrain_is_gymnasiums(seed):
    stock, ours = BipedalWalker(hardcore=True), engine()(WalkerWorld())
    stock.np_random, ours.np_random = (np.random.default_rng(seed) for _ in range(2))
    assert np.array_equal(stock.reset()[0], ours.reset()[0])
    assert stock.terrain_y == ours.ground.y and stock.np_random.random() == ours.np_random.random()
    boxes = [[tuple(corner) for corner in body.fixtures[0].shape.vertices]
             for one in (stock, ours) for body in one.terrain if len(body.fixtures[0].shape.vertices) == 4]
    assert boxes[:len(boxes) // 2] == boxes[len(boxes) // 2:] and len(boxes) // 2 == len(ours.ground.boxes)
    for action in np.random.default_rng(seed).uniform(-1, 1, (60, 4)).astype(np.float32):
        theirs, mine = stock.step(action), ours.step(action)
        assert np.array_equal(theirs[0], mine[0]) and theirs[1:3] == mine[1:3]
        if mine[2]:
            break


def test_what_occurs_in_the_ordinary_game():
    """Small and medium obstacles of each kind, in about every third episode or more; no large ones."""
    grounds = [make_ground(WalkerWorld(), np.random.default_rng(seed)) for seed in range(60)]
    found = [one.name for ground in grounds for one in ground.obstacles]
    sizes = {name: found.count(name) for name in set(found)}
    assert set(sizes) == {f"{size}_{kind}" for size in ("small", "medium") for kind in ("pit", "stump", "stairs")}
    assert min(sizes.values()) > 20


def test_a_course_is_as_it_is_written():
    written = world(("stump", 0.5), ("flat", 4), ("pit", 2), ("stairs down", 2, 3), ("stump", 4), gap=3)
    ground = make_ground(written, np.random.default_rng(0))
    assert [one.name for one in ground.obstacles] == ["small_stump", "small_pit", "large_stairs", "large_stump"]
    starts = [round(one.start / STEP) for one in ground.obstacles]
    assert starts == [20, 25, 33, 48] and len(ground.y) == STEPS
    assert [round(one.end / STEP) for one in ground.obstacles] == [21, 29, 45, 49]
    assert min(ground.y[26:29]) < ground.y[25] - 3.9 * STEP and ground.y[29] == pytest.approx(ground.y[25], abs=0.2)
    assert ground.y[48] < ground.y[32] - 2 * 2 * STEP                   # the stairs led down
    top = max(y for box in ground.boxes[-1:] for _, y in box)
    assert top == pytest.approx(ground.y[48] + 4 * STEP)


def test_no_obstacles_and_nothing_uneven():
    ground = make_ground(world(("flat", 1), roughness=0.0), np.random.default_rng(0))
    assert not ground.obstacles and not ground.boxes and len(set(ground.y)) == 1


@pytest.mark.parametrize("kind, size, name", [
    ("pit", 2, "small_pit"), ("pit", 3, "medium_pit"), ("pit", 4, "large_pit"), ("stump", 1.0, "small_stump"),
    ("stump", 1.5, "medium_stump"), ("stump", 2.1, "large_stump"), ("stairs", 3, "small_stairs"),
    ("stairs", 4, "medium_stairs"), ("stairs", 4.2, "large_stairs")])
def test_sizes_have_names(kind, size, name):
    assert walker.size_name(kind, size) == name


@pytest.mark.parametrize("data, said", [
    ({"course": [{"kind": "stump", "size": 7}]}, "course[0]: the size of stump is 0.1 to 5, not 7"),
    ({"course": [{"kind": "flat", "size": 3}, {"kind": "pit", "size": 2, "steps": 3}]}, "course[1]: steps is for"),
    ({"course": [{"kind": "stairs up", "size": 1, "steps": 9}] * 4}, "up to 171 terrain steps, and there are 160"),
    ({"course": [{"kind": "lava", "size": 1}]}, "lava"), ({"roughness": 11}, "roughness"),
    ({"start_from": "pit"}, "there is no such setting")])
def test_what_cannot_be_is_said(data, said):
    none, complaints = check_world(WalkerWorld, data)
    assert none is None and any(said in str(complaint) for complaint in complaints), complaints


def test_random_courses_fit():
    generator = random.Random(0)
    for _ in range(50):
        made = random_world(WalkerWorld, generator, fill=0.9)
        ground = make_ground(made, np.random.default_rng(0))
        assert walker.course_length(made) <= 160 and len(ground.y) == STEPS
        if made.course:
            assert len(ground.obstacles) == sum(one.kind != "flat" for one in made.course)


def heuristic(game, steps=1600):
    """The walk of Gymnasium's own heuristic."""
    player, action, total = BipedalWalkerHeuristics(), np.zeros(4, np.float32), 0.0
    for _ in range(steps):
        reward, over = game.step(np.clip(action, -1, 1).astype(np.float32))
        total += reward
        if over:
            break
        action = player.step_heuristic(game.observe("vector"))
    return total


def test_objectives_and_conditions():
    """On even ground Gymnasium's heuristic reaches the finish, for the 300 that it is worth; and it passes a stump."""
    game = Course()
    game.reset(world(("flat", 100), roughness=0.0), np.random.default_rng(2))
    assert heuristic(game, 2000) > 300 and not game.conditions and game.death == "the finish"
    assert game.achieved == game.possible == {"walk_10", "walk_50", "walk_100"}
    low = world(("stump", 0.1), roughness=0.0)
    game.reset(low, np.random.default_rng(1))
    assert game.possible == {"walk_10", "walk_50", "walk_100", "pass_small_stump"} and not game.conditions
    seen = []
    step = game.step
    game.step = lambda action: seen.append(bool(game.conditions)) or step(action)
    heuristic(game, 500)
    assert ("pass_small_stump" in game.achieved) and any(seen) and not seen[0]
    assert game.env.hull.position[0] < walker.FINISH


def test_where_it_fell_is_told():
    """With a constant torque it falls at once, and Gymnasium's heuristic into a pit that is too wide for it."""
    game = Course()
    game.reset(world(("pit", 9), roughness=0.0), np.random.default_rng(0))
    heuristic(game)
    assert game.death == "a fall (large pit)"
    venv = Walker().make_vec(num_envs=4, seed=0, episodes=1)
    venv.reset()
    found = []
    while not venv.finished.all():
        infos = venv.step(np.ones((4, 4), np.float32))[4]
        found += infos["results"]["death"][infos["_results"]].tolist() if "results" in infos else []
    assert [walker.DEATHS[k - 1] for k in found] == ["a fall (flat ground)"] * 4


def test_a_goal_and_a_length_cut_an_episode():
    venv = Walker().make_vec([world(("flat", 5), length=20), world(("flat", 5), goal="walk_10"), None], num_envs=3)
    assert venv.lengths == (20, 2000, 2000)


def test_warnings_name_what_is_without_effect():
    fields = {made: {warning.field for warning in Walker().warnings(made)} for made in (
        world(("pit", 2), goal="pass_large_pit"), world(("pit", 2), gap=3), world(("pit", 2), ("pit", 2), gap=3))}
    assert list(fields.values()) == [{"goal"}, {"gap"}, set()]


def test_without_the_package_nothing_breaks_but_playing(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'envgen_nb\[walker\]'"):
        walker.check_installed()
    text = first_prompt(load_templates(), get_simulator("walker"))
    assert "BipedalWalker" in text and "stairs up" in text and all(kind in text for kind in walker.LIMITS)
    assert walker.Segment(kind="pit", size=2).steps is None


SMALL = dict(simulator="walker", num_cycles=1, num_worlds=3, cycle_steps=1024, final_steps=512, evaluation_runs=1,
             evaluation_episodes=2, threads=1, preset_options={"num_envs": 4, "rollout_steps": 64, "minibatches": 4})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that nothing disturbed."""
    folder = create_run(make_settings(**SMALL), tmp_path_factory.mktemp("runs") / "whole")
    for _ in run_cycles(folder.path):
        pass
    return RunFolder(folder.path)


def test_a_whole_run_of_it(run):
    assert run.settings.preset == "vector" and run.settings.num_worlds == 3
    assert make_settings(simulator="walker").agent_preset.algorithm.gae_lambda == 0.9
    assert run.finished() and (run.path / "cycle-1" / "worlds.png").stat().st_size > 1_000
    measured = [run.evaluation(cycle) for cycle in run.cycles]
    assert len(measured) == 3 and all(one.unlocked.shape == (2, 12) and not one.possible.all() for one in measured)
    assert all(one.deaths.max() <= len(walker.DEATHS) for one in measured)


def test_the_agent_is_watched_in_a_course_and_in_the_game(run):
    """The list of objectives has those of the course only; the wide picture is as large as others, in all."""
    before, after = watched(run, "cycle-1:1", ["cycle-0", "final"], steps=20)
    course = run.worlds("cycle-1")[0]
    assert before["possible"] == after["possible"] and after["steps"] == len(after["actions"]) <= 20
    assert set(after["possible"]) == Walker().start(course).possible and after["who"] == "after the last training"
    assert "left hip " in after["actions"][0] and after["sheet"]["width"] > 250 and after["seen"]["names"] == "numbers"
    assert watched(run, "", ["random"], steps=5)[0]["title"].endswith("the original game, seed 0")
    assert seen_picture(np.array([-1, 0, 1], np.float32), {})[::8, 0, 0].tolist()[:3] == [24, 139, 255]


def test_the_studio_shows_and_edits_courses(run):
    game = get_simulator("walker")
    state = Worlds(game, designs=run.designs("cycle-1"))
    assert gallery_html(state).count("<img") == 3 and "course" in gallery_html(state)
    assert worlds_view(state).children
    state.edit(0, course=[{"kind": "pit", "size": 2}, {"kind": "flat", "size": 4}])
    assert state.designs[0].world.course == (Segment(kind="pit", size=2), Segment(kind="flat", size=4))
    state.edit(0, course=[{"kind": "pit", "size": 20}])
    assert "the size of pit is 1 to 10, not 20" in str(state.complaints[0][0])
    play = Play(game, state.designs[0].world)
    assert "no key can give them" in play.status and [name for name, _ in play.objectives][-1] == "pass_small_pit"
    play.close()


def test_a_report_of_it(run):
    page = write_report(run).read_text()
    assert page.count("data:image/webp") >= 5 and "pass small pit" in page and len(page) < 1_000_000


def test_by_hand_a_prompt_is_written_and_a_reply_is_read(tmp_path):
    """A reply with a pit that is too wide goes back with the complaint; the next one is trained in."""
    folder = create_run(make_settings(**SMALL | {"designer": "manual", "num_worlds": 1, "designer_options": {
        "timeout": 0.3, "poll": 0.02}, "cycle_steps": 256, "final_steps": 0}), tmp_path / "run").path
    with pytest.raises(DesignerError, match="save it as .*reply-cycle-1.md and resume the run"):
        list(run_cycles(folder))
    prompt = (folder / "manual" / "prompt-cycle-1.md").read_text()
    assert all(word in prompt for word in ("stairs down", "1 to 10", "pass_large_stump", "roughness"))
    reply = ('```json\n{{"course": [{{"kind": "stump", "size": 0.4}}, {{"kind": "pit", "size": {}}}]}}\n```\n'
             'Purpose: a low stump, then a pit.\n')
    (folder / "manual" / "reply-cycle-1.md").write_text(reply.format(12))
    with pytest.raises(DesignerError, match="reply-cycle-1-again-1.md"):
        list(run_cycles(folder))
    assert "the size of pit is 1 to 10, not 12" in (folder / "manual" / "prompt-cycle-1-again-1.md").read_text()
    (folder / "manual" / "reply-cycle-1-again-1.md").write_text(reply.format(2))
    list(run_cycles(folder))
    done = RunFolder(folder)
    assert done.finished() and done.worlds("cycle-1") == [world(("stump", 0.4), ("pit", 2))]


def test_a_killed_run_ends_with_the_same_bits(run, tmp_path):
    """The physics of an episode cannot be written down: its actions are played again."""
    folder = create_run(run.settings, tmp_path / "run").path
    code = ("import sys; from envgen_nb.cycle import run; run.CHECKPOINT_SECONDS = 0\n"
            "for event in run.run_cycles(sys.argv[1]): print(type(event).__name__, flush=True)")
    process = subprocess.Popen([sys.executable, "-c", code, folder], stdout=subprocess.PIPE, text=True)
    trained = 0
    for line in process.stdout:
        trained += line.strip() == "Training"
        if trained == 3:
            process.kill()
    assert process.wait() == -signal.SIGKILL
    state = load_checkpoint(folder / "checkpoint.pt")
    assert state["venv"] and not RunFolder(folder).finished()
    list(run_cycles(folder))
    ends = [load_checkpoint(one / "checkpoint.pt")["learner"] for one in (run.path, folder)]
    assert same(*ends)
    for cycle in run.cycles:
        assert RunFolder(folder).evaluation(cycle).to_dict() == run.evaluation(cycle).to_dict()


@pytest.mark.long
def test_from_the_command_line_under_papermill(tmp_path):
    envgen = Path(sys.executable).with_name("envgen")
    small = [part for name, value in SMALL.items() if name != "simulator"
             for part in ("-p", name, json.dumps(value))]
    done = subprocess.run([envgen, "run", "walker", "-p", "folder", tmp_path / "run", *small], capture_output=True,
                          text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "walk_100" in done.stdout and "score of the policy" in done.stdout and "Traceback" not in done.stderr
    for name in ("report.html", "envgen.ipynb"):
        assert (tmp_path / "run" / name).stat().st_size > 10_000


@pytest.mark.parametrize("file", ["worlds/walker.json", "recordings/walker/ladders-reply.md"])
def test_the_ladders_of_the_experiment_lead_to_their_goals(file):
    game, text = Walker(), (OWN_FOLDER / file).read_text()
    found = read_reply(text, WalkerWorld, 8, objectives=game.objectives)
    assert not found.complaints and {one.goal for one in found.designs} >= {"walk_10", "walk_50", "walk_100"}
    for one in found.designs:
        assert not game.warnings(one.world)
        if one.world.course:
            assert one.goal in game.start(one.world).possible and one.world.goal in (one.goal, None)


@pytest.mark.parametrize("designer", ["frontier", "missing", "backward"])
def test_designers_that_start_from_own_moments_are_refused(designer):
    with pytest.raises(DesignerError, match="walker has no starts from the agent's own moments"):
        make_designer(designer).reply(Request(Walker(), "default", 2))


def test_the_time_of_its_experiment_is_foretold(tmp_path):
    "By training in this game, whose observations no other game has."
    experiment = read_experiment("walker")
    folder = open_experiment(experiment, tmp_path / "walker")
    said = _time_expected(folder, experiment.runs(), forecast(folder, experiment.runs()), make_place("local", 2, None))
    assert re.fullmatch(r"; about .+(seconds|minutes|hours), 2 at the same time", said)
