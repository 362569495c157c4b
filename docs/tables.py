"""The tables and figures of README and documentation, made from the records in benchmarks/.

    python docs/tables.py           # writes them where they belong, between their two comments
    python docs/tables.py --check   # exit status 1 and the names of those that do not say what the records say
"""
import argparse
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import plotly.graph_objects as go

from envgen_nb.designer.prompt import PLACEHOLDERS
from envgen_nb.experiment import benchmark
from envgen_nb.experiment.file import own_experiments, read_experiment
from envgen_nb.game.files import read_jsonl
from envgen_nb.game.words import counted
from envgen_nb.results import RETURN, limits_of, shown_measures
from envgen_nb.results.charts import COLOURS, Drawing, Series, alone, chart, estimate_traces, points, svg
from envgen_nb.results.figures import percents_moved
from envgen_nb.results.progress import duration
from envgen_nb.results.statistics import PERCENT, Estimate, iqm, mean, paired
from envgen_nb.studio.experiment_view import ends, gain_curves, plus_minus, setting_curves, step_rows

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from records import KEPT, RECORDS, names, opened, report, unpack  # noqa: E402, F401
from sleep import bound  # noqa: E402

PAGES = (ROOT / "README.md", RECORDS / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md")))
PLAIN = "none, PPO in the original game alone"
ARMS = {      # what they are, in words
    "paper": {
        "plain": PLAIN,
        "fixed": "four of one reply of a language model, in every cycle",
        "easy_to_hard": "practice worlds in a fixed order",
        "adversarial": "of 16 random worlds the four that the agent is worst in",
        "random": "four random ones, new in each cycle",
        "rules": "a curriculum by hand that follows the success rates"},
    "feedback": {
        "none": "no rates in the prompt",
        "placebo": "those of another run",
        "rates": "those of this run"},
    "counted": {
        "plain": PLAIN,
        "rules": "the designer of that name reads measurements, which are beside the budget",
        "rules_training": "it reads training episodes; every step is counted"},
    "mixture": {
        **{f"share-{share}": f"{share}% of each cycle's steps in designed worlds, then a million steps without"
           for share in (10, 25, 50, 75, 90)},
        "constant": "a quarter of the sub-environments plays designed worlds to the last step"},
    "rare_controls": {
        "ppo": "PPO",
        "rare": "`ppo-rare`: pairs of things are new, rare objectives are imitated, each alike",
        "things": "single things are new, instead of pairs",
        "alike": "any achievement is imitated, each alike, instead of rare ones",
        "rnd": "the reward for novelty is the error of random network distillation"},
    "rare_minigrid": {"ppo": "PPO", "rare": "`ppo-rare`"},
    "transfer_parts": {
        "plain": PLAIN,
        "rules": "the designer of that name, in phases",
        "short": "the same in episodes of 128 steps",
        "aimed": "written by hand at what was missing, short and with a goal, in phases",
        "tried_out": "`rules` proposes eight, the four are taken from which most can be learned",
        "constant": "`rules` in a quarter of the games, to the last step",
        "learnability": "of all its worlds those from which most can be learned, in a quarter of the games",
        "plr": "the same by prioritised replay",
        "domain_randomisation": "random ones, in a quarter of the games",
        "frontier": "starts from moments of the agent's own episodes, in phases",
        "frontier_constant": "the same in a quarter of the games, to the last step",
        "missing": "and what was missing there is given at the start"},
    "transfer": {
        "plain": PLAIN,
        "rules": "the designer of that name, in phases",
        "frontier": "starts from moments of the agent's own episodes, in a quarter of the games",
        "together": "what was missing is given there, worlds are tried out, and chosen by what can be learned",
        "backward": "starts ever further back, in half of the games",
        "steps": "the same, with starts that are nearer to each other"}}
ARMS["transfer_4m"] = ARMS["transfer"]
ARMS["walker"] = {
    "plain": "none, PPO in the ordinary game alone",
    "domain_randomisation": "random ones, new all the time",
    "plr": "of random ones those from which most can be learned",
    "easy_to_hard": "practice worlds in a fixed order",
    "rules": "practice worlds by the success rates",
    "hand": "ladders that a person wrote",
    "model": "ladders that a language model wrote once"}
DESIGNERS = ARMS["paper"] | {      # those of the benchmark
    "hand": "ladders that a person wrote",
    "domain_randomisation": "random worlds, drawn by the curriculum",
    "fixed": f"{ARMS['paper']['fixed']}; five such replies"}
ARMS["published"] = DESIGNERS | {
    "model": "of a language model that gets the success rates",
    "model_without": "of the same model, asked as often, without them"}
LADDERS = {      # the arms of the experiment `ladders`
    "plain": PLAIN,
    "hand": "written by a person",
    "once": "written by a language model before the training",
    "corrected": "corrected by it three times",
    "placebo": "those that it wrote and corrected for the run of another seed",
    "lessons": "corrected, and it had lessons of other runs",
    "rare": "the same, with the learner `ppo-rare`"}
ROLES = {        # the arms of the experiments `roles_…`
    "none": "PPO alone",
    "designer": "ladders of a language model",
    "teacher": "its answers to each situation",
    "both": "the ladders and the answers",
    "player": "it plays itself, by options",
    "uniform": "a teacher to which all options are the same",
    "shuffled": "the answers, dealt to other options",
    "any_option": "a player that takes any option"}
TASKS = {"roles_door_key": "A door and its key", "roles_coloured_keys": "Keys of two colours",
         "roles_two_doors": "Two doors", "roles_blocked": "A blocked door",      # those that are recorded are shown
         "roles_crafter": "Crafter: return of an episode"}
HUMAN = {        # the arms of the experiment `human`
    "ppo": "PPO, the original game alone", "ppo_hand": "PPO, ladders that a person wrote",
    "ppo_model": "PPO, ladders of a language model", "rare": "`ppo-rare`, the original game alone",
    "rare_hand": "`ppo-rare`, ladders that a person wrote", "rare_model": "`ppo-rare`, ladders of a language model"}
READERS = {      # the arms of benchmarks/reader.py
    "original": "the original game",
    "balanced": "the original game, rare frames preferred",
    "random": "half of it random worlds",
    "rules": "half of it worlds chosen by rule for what was read badly",
    "model": "half of it worlds that a language model wrote for what was read badly"}
DRIVERS = {      # the arms of benchmarks/reader_road.py
    "original": "the original game",
    "random": "half of it random scenes",
    "critical": "half of it critical scenes, written by hand"}
SCORE, AREA = "score at the end", "area under the curve"
TO_80 = "steps to a score of 80"
TOOLS = ("wake_up", "collect_iron", "make_iron_pickaxe", "make_iron_sword")
FIRST = {      # the heading of the first column, where it is not worlds
    "feedback": "feedback", "mixture": "mixture", "rare_controls": "learner", "rare_minigrid": "learner"}


def table(head: list[str], rows: list[list[str]], align: str = "") -> str:
    "A Markdown table; `align` has a letter for each column, l or r."
    marks = ["---:" if letter == "r" else "---" for letter in align.ljust(len(head), "r")]
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in [head, marks, *rows])


@cache
def measured(name: str, measure: str) -> dict[str, dict[int, float]]:
    "A measure of all runs of a recorded experiment: arm → seed → value."
    return opened(name).measured(measure)


def runs_of(name: str) -> dict[str, dict[int, dict[str, Any]]]:
    "The runs of a recorded experiment, without arms of which none is recorded: arm → seed → summary."
    return {arm: runs for arm, runs in opened(name).summaries().items() if runs}


def experiment(name: str) -> str:
    "The measures of each arm, and how much more they are than the baseline's, by pairs of the same seed."
    folder = opened(name)
    base, measures = folder.experiment.baseline, shown_measures(folder.experiment.measures)
    found = [measured(name, measure) for measure in measures]
    head = [FIRST.get(name, "worlds")]
    head += [text for measure in measures for text in (measure, *["IQM"] * (measure == SCORE), f"more than `{base}`")]
    rows = []
    for arm in folder.experiment.arms:
        row = [f"`{arm}`: {ARMS[name][arm]}"]
        for measure, values in zip(measures, found, strict=True):
            row += [plus_minus(mean(values[arm].values(), limits_of(measure))),
                    *[plus_minus(iqm(values[arm].values()))] * (measure == SCORE),
                    "" if arm == base else plus_minus(paired(values[arm], values[base]), signed=True)]
        rows.append(row)
    return table(head, rows, "l")


def ladders(name: str) -> str:
    "An experiment with ladders: score and return at the end, and how often the skills are shown that it is about."
    folder, skills = opened(name), ("make_iron_pickaxe", "make_iron_sword", "collect_diamond", "eat_plant", "wake_up")
    scores, returns, rows = measured(name, SCORE), measured(name, RETURN), []
    for arm in folder.experiment.arms:
        row = [f"`{arm}`: {LADDERS[arm]}", str(len(scores[arm]))]
        for found, other in ((scores, [plus_minus(iqm(scores[arm].values()))]), (returns, [])):
            row += [plus_minus(mean(found[arm].values())), *other,
                    "" if arm == "plain" else plus_minus(paired(found[arm], found["plain"]), signed=True)]
        rows.append(row + [f"{mean(_skill(name, arm, skill).values()).value:.1f}" for skill in skills])
    return table(["ladders", "seeds", "score at the end", "IQM", "more than `plain`", "return", "more than `plain`",
                  *(f"{skill}, %" for skill in skills)], rows, "l")


@cache
def role_tokens(name: str) -> dict[str, tuple[float, float]]:
    "What each role of a model cost: arm → calls and tokens, estimated as four characters each; a player's: an episode."
    folder = KEPT / "recordings" / "roles" / name.removeprefix("roles_").replace("_", "-")
    def size(files: Iterable[Path]) -> tuple[int, float]:
        texts = {file.name: len(file.read_text()) / 4 for file in files}
        return sum(not name.endswith("reply.md") for name in texts), sum(texts.values())

    teacher = size(folder.glob("teacher*.md"))
    of_each = [[*folder.glob("ladders*.md")]] if name != "roles_crafter" else [      # there each seed has its own
        [*path.glob("*.md")] for path in (KEPT / "recordings" / "ladders").glob("corrected-*/cycle-1")]
    designer = tuple(mean(values).value for values in zip(*map(size, of_each), strict=True))
    played = json.loads((folder / "player-sizes.json").read_text()).values()
    player = [mean(values).value for values in zip(
        *((one["calls"], sum(one["characters"].values()) / 4) for one in played), strict=True)]
    return {"none": (0, 0), "designer": designer, "teacher": teacher,
            "both": (designer[0] + teacher[0], designer[1] + teacher[1]), "player": tuple(player),
            "uniform": (0, 0), "shuffled": teacher, "any_option": (0, 0)}


def _paid(name: str, arm: str) -> list[str]:
    "The calls and the tokens of a role, for a table."
    calls, tokens = role_tokens(name)[arm]
    return [f"{size}{' an episode' * (arm == 'player')}" if calls else "–"
            for size in (f"{calls:.1f}".removesuffix(".0"), f"{tokens:,.0f}")]


def roles(name: str) -> str:
    "What a language model is worth in each of its roles, in a task: success over the training, and tokens."
    area, ends, steps, rows = measured(name, AREA), measured(name, SCORE), measured(name, TO_80), []
    reached = opened(name).measured(TO_80, reached=True)
    for arm in area:
        count, never = len(area[arm]), len(steps[arm]) - len(reached[arm])
        after = f"{'over ' * bool(never)}{mean(steps[arm].values()).value:,.0f}"      # with the ends of those runs
        rows.append([f"`{arm}`: {ROLES[arm]}", plus_minus(mean(area[arm].values())),
                     "" if arm == "none" else plus_minus(paired(area[arm], area["none"]), signed=True),
                     f"{count - never} of {count}", "" if never == count or arm == "player" else after,
                     plus_minus(mean(ends[arm].values())), *_paid(name, arm)])
    return table(["a language model is", "success over the training, %", "more than `none`", "runs that reach 80%",
                  "after steps", "success at the end, %", "calls", "tokens"], rows, "l")


def roles_crafter(name: str = "roles_crafter") -> str:
    "The same in Crafter: return and score. The score of what only plays is that of its episodes together."
    returns, scores, area, rows = measured(name, RETURN), measured(name, SCORE), measured(name, AREA), []
    names = list(next(iter(opened(name).summaries()["none"].values()))["success"])
    for arm in returns:
        plays, row = arm in ("player", "any_option"), [f"`{arm}`: {ROLES[arm]}"]
        rates = {skill: mean(_skill(name, arm, skill).values()).value for skill in names}
        together = math.expm1(np.mean(np.log1p([*rates.values()])))              # Crafter's score, Hafner 2021
        for found in (returns, scores, area):
            alone = plays and found is not returns
            row += ["" if plays and found is area else f"{together:.1f}" if alone else
                    plus_minus(mean(found[arm].values())),
                    "" if arm == "none" or alone else plus_minus(paired(found[arm], found["none"]), signed=True)]
        rows.append([*row, *_paid(name, arm)])
    more = "more than `none`"
    return table(["a language model is", "return at the end", more, "score at the end, %", more,
                  "score over the training, %", more, "calls", "tokens"], rows, "l")


def _skill(name: str, arm: str, skill: str) -> dict[int, float]:
    "A success rate at the end, in %: seed → rate."
    return measured(name, f"success at {skill}")[arm]


def skills(arms: dict[tuple[str, str], str]) -> str:     # (experiment, arm) → heading
    "What rises and falls beside `plain`: every skill at the end, in % of the episodes, what rises most first."
    first, rows = next(iter(arms)), {}
    names = list(next(iter(opened(first[0]).summaries()["plain"].values()))["success"])
    for skill in names:
        rows[skill] = [paired(_skill(name, arm, skill), _skill(name, "plain", skill)) for name, arm in arms]
    def cell(gain: Estimate) -> str:
        clear = gain.low is not None and not gain.low <= 0 <= gain.high
        return f"{'**' * clear}{plus_minus(gain, signed=True)}{'**' * clear}"
    head = [text for (_, arm), said in arms.items() for text in (f"{said}`plain`", f"`{arm}`", "more")]
    last = len(arms) - 1
    return table(["skill", *head], [
        [f"`{skill}`", *(text for (name, arm), gain in zip(arms, rows[skill], strict=True) for text in (
            *(plus_minus(mean(_skill(name, one, skill).values(), PERCENT)) for one in ("plain", arm)), cell(gain)))]
        for skill in sorted(names, key=lambda skill: -rows[skill][last].value)], "l")


def tools_share(name: str) -> float:
    "How much of what `steps` gains over plain PPO in the logarithm of the score is that of the two iron tools, in %."
    found = opened(name).summaries()["steps"]
    gains = {skill: mean(math.log1p(_skill(name, "steps", skill)[seed]) - math.log1p(_skill(name, "plain", skill)[seed])
                         for seed in found).value for skill in next(iter(found.values()))["success"]}
    return 100 * (gains["make_iron_pickaxe"] + gains["make_iron_sword"]) / sum(gains.values())


def steps_played() -> str:
    "The environment steps of a run of each arm of the recorded experiments, where not all of them are training."
    rows = []
    for name in names():
        alike: dict[tuple[str, ...], list[str]] = {}
        for arm, *steps in step_rows(opened(name))[1]:
            if steps[1:3] != ["0", "0"]:
                alike.setdefault(tuple(steps[:3]), []).append(f"`{arm}`")
        rows += [[f"`{name}`", ", ".join(arms), *steps] for steps, arms in alike.items()]
    return table(["experiment", "arms", "training", "trying out", "measurements that the designer read"], rows, "ll")


def chain(file: str) -> str:
    "How far each arm of an experiment gets on the way to an iron tool, link by link, in % of the episodes."
    arms = json.loads((BENCHMARKS / file).read_text())["arms"]
    links = list(next(iter(arms["plain"].values())))
    return table(["in the original game", *(f"`{arm}`" for arm in arms)], [
        [link, *(plus_minus(mean([one[link] for one in seeds.values()], PERCENT)) for seeds in arms.values())]
        for link in links], "l")


def backward_tuning() -> str:
    "What was tried on the way to the arms `backward` and `steps` of the experiment `transfer`."
    designs: dict[str, list[dict[str, Any]]] = {}
    for run in read_jsonl(BENCHMARKS / "backward_tuning.jsonl"):
        designs.setdefault(run["design"], []).append(run)
    return table(["design", "seeds", "score at the end of each"], [
        [design, ", ".join(str(run["seed"]) for run in runs), ", ".join(f"{run['score']:.1f}" for run in runs)]
        for design, runs in designs.items()], "llr")


def paper_short() -> str:
    "Of each arm of the experiment `paper`, how much more than plain it has."
    measures = shown_measures(opened("paper").experiment.measures)
    found = [measured("paper", measure) for measure in measures]
    return table(["worlds", *measures], [
        [f"`{arm}`: {text}", *(plus_minus(paired(values[arm], values["plain"]), signed=True) for values in found)]
        for arm, text in ARMS["paper"].items() if arm != "plain"], "l")


def make_run() -> str:
    "The success rates of one `make run`, before and after, and its scores."
    run = json.loads((BENCHMARKS / "make_run.json").read_text())
    rows = sorted(((name, rates[0], rates[-1]) for name, rates in run["success"].items()),
                  key=lambda row: row[1] - row[2])
    rates = table(["objective", "before", "after", "change"],
                  [[f"`{name}`", f"{a:.0f}%", f"{b:.0f}%", f"{percents_moved(a, b):+d}"] for name, a, b in rows], "l")
    return (f"{rates}\n\nScore of the policy: {run['scores'][0]:.1f}% before, {run['scores'][-1]:.1f}% after; its "
            f"return: {run['returns'][0]:.1f} before, {run['returns'][-1]:.1f} after; score over all training episodes "
            f"in the original game: {run['training']['score']:.1f}%.")


def make_run_short() -> str:
    "Six rows of it: what nearly all agents learn, what some do, what is given up, and what is not learned."
    chosen = ("collect_wood", "make_stone_pickaxe", "place_furnace", "collect_iron", "collect_diamond", "wake_up")
    lines = make_run().splitlines()
    return "\n".join([*lines[:2], *(line for line in lines if line.startswith(tuple(f"| `{one}`" for one in chosen)))])


def presets() -> str:
    "Plain PPO in the original game, as the presets are: the Crafter score in both readings."
    names = {("symbols", "{}"): "`symbols`",
             ("symbols", '{"compiled": false}'): "the same, attention computed by torch in bfloat16",
             ("laptop", "{}"): "`laptop` (pixels)"}
    found = defaultdict(list)
    for record in read_jsonl(BENCHMARKS / "agent_tuning.jsonl"):
        if record["steps"] == 999_424 and record.get("learner", "ppo") == "ppo":
            found[record["preset"], json.dumps(record["changes"])].append(record)
    return table(["preset", "seeds", "over all training episodes, %", "of the final policy, %", "its return"], [
        [text, str(len(found[key])), *(plus_minus(mean(r[which] for r in found[key]))
                                       for which in ("score_training", "score_policy", "return_policy"))]
        for key, text in names.items()], "l")


def _said(changes: dict) -> str:
    if changes.get("encoder") == "agent_designs:Plain":
        return "an encoder without attention"
    return ", ".join(f"{name} {value}" for name, value in changes.items()) or "as it is"


DESIGNS = {      # designs that were tried, as they are recorded: learner and what differs from it
    "agent_designs:Novelty": ("ppo-rare", "imitation_steps 0"),
    "agent_designs:Imitation": ("ppo-rare", "novelty_coef 0"),
    "agent_designs:Imitation4": ("ppo-rare", "novelty_coef 0, imitation_steps 4"),
    "agent_designs:Both": ("ppo-rare", "as it was"),
    "agent_designs:Chosen": ("ppo", "only the half of the steps with the largest advantages is learned from"),
    "agent_designs:Farther": ("ppo-rare", "1 / (1 − γ) grows from 20 to 100"),
    "agent_designs:Undiscounted": ("ppo-rare", "what is imitated is not discounted"),
    "agent_designs:Valued": ("ppo-rare", "rarity_coef 1"),
    "agent_designs:Valued2": ("ppo-rare", "rarity_coef 2"),
    "agent_designs:Kept": ("ppo-rare", "rarity_coef 1, and 4 (best rate − rate) more for each objective"),
    "agent_designs:Constrained": ("ppo-rare", "rarity_coef 1, retention_lr 2.5"),
    "agent_designs:Annealed": ("ppo-rare", "the learning rate falls to a tenth"),
    "agent_designs:PerMinibatch": ("ppo-rare", "advantages are normalised in each minibatch"),
    "agent_designs:KLStop": ("ppo-rare", "passes end above a KL divergence of 0.02"),
    "agent_designs:TwoHorizons": ("ppo-rare", "a second critic with γ 0.99, λ 0.9; the sum of both advantages"),
    "agent_designs:TwoHot": ("ppo-rare", "the critic is a two-hot distribution in symlog"),
    "agent_designs:PQN": ("PQN", "Q(λ), ε-greedy")}


def _learner_and_changes(record: dict[str, Any]) -> tuple[str, str]:
    "Of a row of agent_tuning.jsonl, in words."
    name = record.get("learner", "ppo")
    return DESIGNS.get(name, (name, _said(record["changes"])))


def tuning() -> str:
    "Every setting that was tried, without designed worlds: those of most steps first, then the best."
    found = defaultdict(list)
    for record in read_jsonl(BENCHMARKS / "agent_tuning.jsonl"):
        learner, changes = _learner_and_changes(record)
        found[learner, record["preset"], record["steps"], changes].append(record)
    rows = []
    for (learner, preset, steps, changes), records in found.items():
        scores = [mean(record[which] for record in records)
                  for which in ("score_training", "score_policy", "return_policy")]
        rows.append((steps, scores[0].value, [f"`{learner}`", f"`{preset}`", changes, f"{steps:,}", str(len(records)),
                                              *map(plus_minus, scores)]))
    rows.sort(key=lambda row: (-row[0], -row[1]))
    return table(["learner", "preset", "changed", "steps", "seeds", "over all training episodes, %",
                  "of the final policy, %", "its return"], [row for *_, row in rows], "lll")


@cache
def _screened() -> dict[str, dict[int, dict[str, Any]]]:     # what was changed → seed → row
    "What was tried in `ppo-rare`: the same tuning seeds at 1.96 million steps, in the original game alone."
    found: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for record in read_jsonl(BENCHMARKS / "agent_tuning.jsonl"):
        learner, changes = _learner_and_changes(record)
        shape = record["preset"], record["steps"]
        if learner == "ppo-rare" and shape == ("symbols-long", 1_961_984) and record["seed"] < 5:
            found[changes][record["seed"]] = record
    return dict(found)


def _changed(changes: str, which: str) -> dict[int, float]:
    "A measure, or the rate of a skill, by seed."
    return {seed: run.get(which, run["success"].get(which)) for seed, run in _screened()[changes].items()}


def _changes(changes: str, which: str, base: str = "as it is") -> Estimate:
    "How much more it is with a change than without."
    return paired(_changed(changes, which), _changed(base, which))


def screened() -> str:
    "The changes to `ppo-rare`, the best first."
    rows = []
    for changes, runs in sorted(_screened().items(), key=lambda item: -mean(
            run["score_policy"] for run in item[1].values()).value):
        row = [changes, str(len(runs))]
        for which in ("score_policy", "return_policy", "score_training", "wake_up"):
            row += [plus_minus(mean(_changed(changes, which).values())),
                    "" if changes == "as it is" else plus_minus(_changes(changes, which), signed=True)]
        rows.append(row + [f"{mean(run['success'][skill] for run in runs.values()).value:.1f}"
                           for skill in ("eat_plant", "collect_diamond", "make_iron_pickaxe", "make_iron_sword")])
    return table(["changed", "seeds", "score at the end, %", "more", "return", "more", "score over training, %", "more",
                  "wake_up, %", "more", "eat_plant, %", "collect_diamond, %", "make_iron_pickaxe, %",
                  "make_iron_sword, %"], rows, "l")


def _agents(read: dict[str, Any]) -> str:
    "A row for each number of steps that agents of benchmarks/sleep.json had, means over the seeds: heading → number."
    found = defaultdict(list)
    for one in json.loads((BENCHMARKS / "sleep.json").read_text())["agents"].values():
        found[one["steps"]].append(one)
    return table(["training steps", "seeds", *read], [
        [f"{steps:,}", str(len(agents)), *(plus_minus(mean(map(number, agents)), signed="more" in name)
                                           for name, number in read.items())]
        for steps, agents in sorted(found.items())], "r")


def sleep() -> str:
    "What sleep is worth to agents, and what their critics expect where it becomes possible."
    return _agents({"V at the first step with energy 8": lambda one: one["value"],
                    "wake_up, %": lambda one: one["wake_up"][0],
                    "with sleep put in, %": lambda one: one["wake_up"][1],
                    "return: more with sleep": lambda one: one["more"]["return"][0],
                    "discounted return: more with sleep": lambda one: one["more"]["discounted"][0]})


def lacking() -> str:
    "What plants and diamonds lack, and of what agents die."
    def held(*conditions: str) -> Any:
        return lambda one: one["lacking"]["held"][" and ".join(conditions)]

    def died(name: str) -> Any:
        return lambda one: 100 * one["lacking"]["deaths"][name] / one["episodes"]

    bag, diamond = "iron pickaxe in the bag", "diamond in sight"
    return _agents({"steps of an episode": lambda one: one["lacking"]["length"],
                    "over 300 steps, %": lambda one: one["lacking"]["long"],
                    "ripe plant in sight, %": held("ripe plant in sight"), f"{bag}, %": held(bag),
                    f"{diamond}, %": held(diamond), "both, %": held(bag, diamond),
                    "died of thirst, %": died("thirst"), "of a zombie, %": died("zombie")})


PLANTS = {      # the arms of benchmarks/plants.py
    "alone": "PPO, all games in the plant worlds", "alone_0.997": "the same, γ 0.997, λ 0.95",
    "rare": "`ppo-rare`, the original game alone", "half": "`ppo-rare`, half of the games in the plant worlds",
    "half_no_novelty": "the same, novelty is rewarded in the original game alone",
    "far_half": "the same, and a second critic for what is hardly ever reached, γ 0.997",
    "far": "`ppo-rare` with that critic, the original game alone"}
DENSITY = {"none": "no zombies", "rare": "few zombies", "common": "zombies as in the game"}


@cache
def _plants() -> dict[str, dict[int, dict[str, Any]]]:
    "The runs of benchmarks/plants.py: arm → seed → run."
    found: dict[str, dict[int, dict[str, Any]]] = {arm: {} for arm in PLANTS}
    for run in read_jsonl(BENCHMARKS / "plants.jsonl"):
        found[run["arm"]][run["seed"]] = run
    return found


def _waited(arm: str, grown: int, zombies: str, what: str = "eaten") -> dict[int, float]:
    "How often a plant was eaten in one of the worlds, by seed; or what of `deaths`."
    found = {seed: next(one for one in run["worlds"] if (one["grown"], one["zombies"]) == (grown, zombies))
             for seed, run in _plants()[arm].items()}
    return {seed: one.get(what, one["deaths"].get(what)) for seed, one in found.items()}


def plants() -> str:
    "How often each arm eats a plant in the game, and in worlds where it has to wait."
    worlds = [(one["grown"], one["zombies"]) for one in next(iter(_plants()["rare"].values()))["worlds"]]
    rows = []
    for arm, text in PLANTS.items():
        runs = _plants()[arm].values()
        rows.append([text, str(len(runs)), f"{next(iter(runs))['steps']:,}",
                     *(plus_minus(mean(run[which] for run in runs)) for which in ("score", "return")),
                     plus_minus(mean((run["game"]["eaten"] for run in runs), PERCENT)),
                     *(plus_minus(mean(_waited(arm, *one).values(), PERCENT)) for one in worlds)])
    return table(["trained", "seeds", "steps", "score", "return", "eat_plant in the game, %", *(
        f"eaten, {301 - grown} steps to wait, {DENSITY[zombies]}, %" for grown, zombies in worlds)], rows, "l")


@cache
def _late(*path: str | int) -> Estimate:
    "A number of the agents of `human` after ten million steps, benchmarks/sleep_human.json; shares of episodes in %."
    found = []
    for one in json.loads((BENCHMARKS / "sleep_human.json").read_text())["agents"].values():
        value: Any = one
        for key in path:
            value = value[key]
        found.append(100 * value / one["episodes"] if "deaths" in path else value)
    return mean(found)


def limit() -> str:
    "What a step of training takes, and the least that its matrix products can take, benchmarks/agent_limit.json."
    found = json.loads((BENCHMARKS / "agent_limit.json").read_text())
    shares, products = found["shares"], found["products"]
    flops, peaks = ({name: one[what] for name, one in products.items()} for what in ("mflop", "peak"))
    alone = sum(one["alone"] for one in products.values())
    rows = (
        (f"the whole step, one thread: {100 * shares['learn']:.0f}% learning, {100 * shares['act']:.0f}% acting, "
         f"{100 * shares['simulate']:.0f}% the game", found["step"]),
        (f"its matrix products alone, {flops['bfloat16']:.2f} MFLOP in bfloat16 and {flops['float32']:.2f} in float32, "
         "their numbers in the cache", alone),
        (f"the same at the peak of one core, {peaks['bfloat16']:.0f} GFLOP/s in bfloat16 and {peaks['float32']:.0f} in "
         "float32", found["least"]),
        ("the whole step, learning with two threads, by the clock", found["two_threads"]))
    return table(["", "µs", "of the step"], [[text, f"{took:.1f}", f"{100 * took / found['step']:.0f}%"]
                                             for text, took in rows], "l")


def operations() -> str:
    "The operations that take the most of a training, benchmarks/agent_limit.json."
    found = json.loads((BENCHMARKS / "agent_limit.json").read_text())["operations"]
    rows = [[f"`{name}`", f"{100 * share:.1f}", f"{calls:,}"] for name, share, calls in found[:8]]
    rest = found[8:]
    return table(["operation", "share, %", "calls in 20,480 steps"], [*rows, [
        f"{len(rest)} others", f"{100 * sum(share for _, share, _ in rest):.1f}",
        f"{sum(calls for *_, calls in rest):,}"]], "l")


def _ratios(name: str) -> list[float]:
    return json.loads((BENCHMARKS / "train_turns.json").read_text())["rows"][name]["ratios"]


def train_turns() -> str:
    "Ratios of the steps per CPU second of two trainings, in turns, benchmarks/train_turns.json."
    rows = json.loads((BENCHMARKS / "train_turns.json").read_text())["rows"]
    return table(["", "ratio (the turns)", "steps per CPU second"], [
        [name, f"{median(row['ratios']):.2f} ({row['ratios'][0]:.2f} to {row['ratios'][-1]:.2f})",
         "{1:,.0f} and {0:,.0f}".format(*row["speeds"])] for name, row in rows.items()], "l")


def sleep_bounds(energy: list[int], gamma: float) -> list[tuple[list[int], list[float]]]:
    "Below which V sleeping pays: steps and bounds of each stretch with an energy below 9."
    found: list[tuple[list[int], list[float]]] = []
    for step, (before, now) in enumerate(zip([9, *energy], energy, strict=False), start=1):
        if now < 9:
            if before == 9:
                found.append(([], []))
            found[-1][0].append(step)
            found[-1][1].append(bound(now, gamma))
    return found


def sleepless() -> Drawing:
    "Single episodes: the critic's value at each step, as the agent plays, and with sleep put in."
    one = list(json.loads((BENCHMARKS / "sleep.json").read_text())["agents"].values())[-1]
    panels = []
    for number, pair in enumerate(one["singles"], start=1):
        for played, said in zip(pair, ("as it plays", "with sleep put in"), strict=True):
            steps = list(range(1, len(played["values"]) + 1))
            traces = [go.Scatter(x=steps, y=played["values"], name="V", mode="lines", line={"color": COLOURS[0]}),
                      *(go.Scatter(x=x, y=y, name="sleep pays below", mode="lines", showlegend=not k,
                                   line={"color": COLOURS[7], "dash": "dot"})
                        for k, (x, y) in enumerate(sleep_bounds(played["energy"], one["gamma"]))),
                      go.Scatter(x=[step + 1 for step in played["asleep"]], y=[-0.2] * len(played["asleep"]),
                                 name="asleep", mode="markers", marker={"size": 6, "color": COLOURS[1]})]
            reached = sorted(played["reached"].items(), key=lambda item: item[1])
            traces.append(go.Scatter(x=[step for _, step in reached],
                                     y=[played["values"][step - 1] for _, step in reached],
                                     name="new skill", mode="markers",
                                     marker={"size": 7, "color": COLOURS[2]},
                                     text=[name.replace("_", " ") for name, _ in reached]))
            panels.append(chart(traces, f"Episode {number}, {said}: {len(reached)} skills", x_title="step", height=230,
                                above=True))
            panels[-1].update_yaxes(range=[-0.5, 5])
    return svg(*panels, width=480, columns=2, title="Three episodes: sleep would pay where V, what the critic expects, "
               "is below the dotted line")


def _after(arm: str, what: str) -> dict[int, list[float]]:
    "The scores or returns of an arm of `human` at each measurement: steps, to the next million → one for each seed."
    found = defaultdict(list)
    for one in runs_of("human")[arm].values():
        for step, value in zip(one["steps"], one[what], strict=True):
            found[round(step, -6)].append(value)
    return found


def _million(steps: int) -> str:
    return f"{steps / 1e6:.0f}M"


def human() -> str:
    "The arms of `human` that are recorded: score and return as they grow, and what is reached at the end."
    rows, skills = [], ("wake_up", "collect_diamond", "eat_plant")
    for arm, runs in runs_of("human").items():
        scores, returns = (_after(arm, what) for what in ("scores", "returns"))
        steps = sorted(scores)[1:]
        rows.append([f"`{arm}`: {HUMAN[arm]}", str(len(runs)), *(plus_minus(mean(scores[step])) for step in steps),
                     plus_minus(iqm(scores[steps[-1]])), *(plus_minus(mean(returns[step])) for step in steps[1::3]),
                     plus_minus(mean(measured("human", "skills kept")[arm].values(), PERCENT)),
                     *(f"{mean(_skill('human', arm, skill).values()).value:.1f}" for skill in skills),
                     "{1:.0f} ({0:.0f} to {2:.0f})".format(*_minutes("human", arm))])
    return table(["arm", "seeds", *(f"score at {_million(step)}" for step in steps), f"IQM at {_million(steps[-1])}",
                  *(f"return at {_million(step)}" for step in steps[1::3]), "skills kept, %",
                  *(f"{skill}, %" for skill in skills), "minutes of a run"], rows, "l")


def _minutes(name: str, arm: str) -> list[float]:
    "The least, median and most minutes that training took in a run of an arm."
    minutes = [run["cost"]["seconds"]["training"] / 60 for run in runs_of(name)[arm].values()]
    return [min(minutes), median(minutes), max(minutes)]


def human_skills() -> str:
    "What the arms of `ppo-rare` in `human` reach at the end, the rarest first."
    arms = [arm for arm in runs_of("human") if arm.startswith("rare")]
    found = {arm: {name: mean(_skill("human", arm, name).values(), PERCENT)
                   for name in next(iter(runs_of("human")[arm].values()))["success"]} for arm in arms}
    return table(["skill", *(f"`{arm}`, %" for arm in arms)], [
        [name, *(plus_minus(found[arm][name]) for arm in arms)]
        for name in sorted(found[arms[0]], key=lambda name: found[arms[0]][name].value)], "l")


def from_pixels() -> str:
    "The experiment `pixels`: score and return after one and after two million steps."
    runs = runs_of("pixels")
    steps = [_million(step) for step in next(iter(next(iter(runs.values())).values()))["steps"][1:]]
    rows, names = [], {"scores": "score", "returns": "return"}
    for arm, of in runs.items():
        rows.append([f"`{arm}`: {HUMAN[arm]}", str(len(of)),
                     *(plus_minus(mean(run[what][k] for run in of.values())) for what in names for k in (1, 2)),
                     *(f"{mean(_skill('pixels', arm, skill).values()).value:.1f}" for skill in TOOLS)])
    return table(["agent", "seeds", *(f"{name} at {step}" for name in names.values() for step in steps),
                  *(f"{skill}, %" for skill in TOOLS)], rows, "l")


def human_curves() -> Drawing:
    "Score and return of the recorded arms of `human` over the training, beside human experts."
    panels = []          # human experts: Hafner 2022; EMERALD: Burchi and Timofte 2025
    for what, title, marks in (("scores", "Score", {"human experts": 50.5, "EMERALD": 58.1}),
                               ("returns", "Return", {"human experts": 14.3})):
        traces = []
        for arm in runs_of("human"):
            found = sorted(_after(arm, what).items())
            traces += estimate_traces(Series(arm, [step for step, _ in found], [mean(values) for _, values in found],
                                             COLOURS[list(HUMAN).index(arm)]))
        last = max(max(trace.x) for trace in traces)
        traces += [go.Scatter(x=[0, last], y=[value] * 2, name=name, mode="lines",
                              line={"color": colour, "dash": "dot"})
                   for (name, value), colour in zip(marks.items(), COLOURS[-2:], strict=False)]
        panels.append(chart(traces, title, x_title="environment steps", height=320, above=True))
    return svg(*panels, width=840, title="Crafter over ten million steps: means over seeds, 95% intervals")


BEST = "ppo-long"      # plain PPO with its best preset: what the others are compared with
LEARNERS = {
    "ppo": "`ppo`", "ppo-worlds": "`ppo` with designed worlds",
    "ppo-long": "`ppo`, preset `symbols-long`",
    "memory": "`ppo-memory`", "memory-worlds": "`ppo-memory` with designed worlds",
    "ad": "`ad`, preset `symbols-long`", "ad-worlds": "`ad` with designed worlds",
    "rare": "`ppo-rare`", "rare-worlds": "`ppo-rare` with designed worlds"}


def _by_seed(runs: dict[str, dict[str, Any]], which: str, k: int) -> dict[str, float]:
    "One reading of the score of an arm's runs: seed → at a million steps (k = 0), or at the end (1)."
    return {seed: run[which][k] for seed, run in runs.items()}


def learners_measured() -> str:
    "The experiment `learners`: the score in both readings and the return, beside the best plain PPO."
    runs, returns = json.loads((BENCHMARKS / "learners.json").read_text()), measured("learners", RETURN)
    rows = []
    for arm, text in LEARNERS.items():
        seeds, ends = runs[arm], _by_seed(runs[arm], "score_policy", 1)
        more = [plus_minus(paired(mine, base), signed=True) if arm != BEST else "" for mine, base in (
            (ends, _by_seed(runs[BEST], "score_policy", 1)), (returns[arm], returns[BEST]))]
        rows.append([text, *(plus_minus(mean(_by_seed(seeds, *which).values())) for which in (
            ("score_policy", 0), ("score_training", 1), ("score_policy", 1))), plus_minus(iqm(ends.values())), more[0],
            plus_minus(mean(returns[arm].values())), more[1],
            *(plus_minus(mean((run[tool] for run in seeds.values()), PERCENT))
              for tool in ("make_iron_pickaxe", "make_iron_sword"))])
    best = "more than `symbols-long`"
    return table(["learner", "1M steps: score, %", "1.97M: over training, %", "score, %", "IQM", best, "return", best,
                  "make_iron_pickaxe, %", "make_iron_sword, %"], rows, "l")


def learners_worlds() -> str:
    "The experiment `learners`: what designed worlds add to each learner, paired by seed."
    runs, returns = json.loads((BENCHMARKS / "learners.json").read_text()), measured("learners", RETURN)
    return table(["learner", "score of the policy", "its return", "score over training", "of the policy at 1M steps"], [
        [LEARNERS[arm], *(plus_minus(paired(*pair), signed=True) for pair in (
            (_by_seed(runs[f"{arm}-worlds"], "score_policy", 1), _by_seed(runs[arm], "score_policy", 1)),
            (returns[f"{arm}-worlds"], returns[arm]),
            (_by_seed(runs[f"{arm}-worlds"], "score_training", 1), _by_seed(runs[arm], "score_training", 1)),
            (_by_seed(runs[f"{arm}-worlds"], "score_policy", 0), _by_seed(runs[arm], "score_policy", 0))))]
        for arm in ("ppo", "memory", "ad", "rare")], "l")


def learners() -> str:
    "Learners with the same tuning seeds at the paper's budget; no worlds are designed."
    text = {"ppo": "`ppo`", "ppo-memory": "`ppo-memory`",
            "ad": "`ad`, preset `symbols-long`, phase_episodes 8, phase_epochs 1",
            "agent_designs:Novelty": "novelty alone (`ppo-rare`, imitation_steps 0)",
            "agent_designs:Imitation": "imitation alone (`ppo-rare`, novelty_coef 0)",
            "agent_designs:Imitation4": "the same, four steps (imitation_steps 4)",
            "agent_designs:Both": "`ppo-rare`"}
    found: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for record in read_jsonl(BENCHMARKS / "agent_tuning.jsonl"):
        if record["steps"] == 1_961_984 and record["seed"] in range(910, 915):
            found[record.get("learner", "ppo")][record["seed"]] = record
    rows = []
    for learner, said in text.items():
        runs, row = found[learner], [said, str(len(found[learner]))]
        for which in ("score_training", "score_policy", "return_policy"):
            values, base = ({seed: run[which] for seed, run in of.items()} for of in (runs, found["ppo"]))
            row += [plus_minus(mean(values.values())),
                    "" if learner == "ppo" else plus_minus(paired(values, base), signed=True)]
        row += [plus_minus(mean((run["success"][tool] for run in runs.values()), PERCENT))
                for tool in ("make_iron_pickaxe", "make_iron_sword")]
        rows.append([*row, f"{sum(run['steps_per_cpu_s'] for run in runs.values()) / len(runs):,.0f}"])
    return table(["learner", "seeds", "over all training episodes, %", "more than PPO", "of the final policy, %",
                  "more than PPO", "its return", "more than PPO", "make_iron_pickaxe, %", "make_iron_sword, %",
                  "steps per second of CPU time"], rows, "l")


_SHAPE = {"learning_rate": 0.001, "num_envs": 32, "rollout_steps": 128}
PIXELS = {("ppo", json.dumps({})): "`ppo`",
          ("ppo", json.dumps(_SHAPE)): "`ppo` in rollouts of 32 × 128, learning_rate 0.001",
          ("ad", json.dumps(dict(sorted({**_SHAPE, "phase_episodes": 8, "phase_epochs": 1}.items())))):
              "`ad`, the same and phase_episodes 8, phase_epochs 1"}


def _pixels() -> dict[tuple[str, str], dict[int, dict[str, Any]]]:
    "The records from pixels: (learner, changes) → seed → record."
    found: dict[tuple[str, str], dict[int, dict[str, Any]]] = defaultdict(dict)
    for record in read_jsonl(BENCHMARKS / "agent_tuning.jsonl"):
        if record["preset"] == "laptop" and record["seed"] in range(33, 38):
            changes = json.dumps(record["changes"], sort_keys=True)
            found[record.get("learner", "ppo"), changes][record["seed"]] = record
    return found


def learners_pixels() -> str:
    "PPO and Achievement Distillation from pixels at a million steps, the same seeds; no worlds are designed."
    rows, found = [], _pixels()
    for key, said in PIXELS.items():
        runs, row = found[key], [said, str(len(found[key]))]
        for which in ("score_training", "score_policy", "return_policy"):
            values, base = ({seed: run[which] for seed, run in of.items()} for of in (runs, found["ppo", "{}"]))
            row += [plus_minus(mean(values.values())),
                    "" if key == ("ppo", "{}") else plus_minus(paired(values, base), signed=True)]
        rows.append([*row, f"{sum(run['steps_per_s'] for run in runs.values()) / len(runs):,.0f}"])
    return table(["learner", "seeds", "over all training episodes, %", "more than PPO", "of the final policy, %",
                  "more than PPO", "its return", "more than PPO", "steps per second"], rows, "l")


def _gpu(**wanted: Any) -> list[dict[str, Any]]:
    "The rows of gpu.jsonl that are so."
    return [row for row in read_jsonl(BENCHMARKS / "gpu.jsonl") if wanted.items() <= row.items()]


def _shares(seconds: dict[str, float], total: float) -> list[str]:
    return [f"{seconds[kind] / total:.0%}" for kind in ("simulate", "act", "learn")]


def gpu_speed() -> str:
    "Training in the original game, on a GPU and on the cores beside it."
    rows = []
    for row in _gpu(device="cuda", processes=1):
        cores = _gpu(device="cpu", processes=1, agent=row["agent"], learner=row["learner"])
        rows.append([f"`{row['agent']}`", f"`{row['learner']}`", f"{row['steps_per_s']:,}", *_shares(row["split"], 1),
                     *([f"{cores[0]['steps_per_s']:,}", f"{row['steps_per_s'] / cores[0]['steps_per_s']:.1f}"]
                       if cores else ["", ""])])
    return table(["agent", "learner", "GPU: steps/s", "simulate", "act", "learn", "CPU: steps/s", "GPU : CPU"], rows,
                 "ll")


def gpu_runs() -> str:
    "Whole runs on a GPU."
    return table(["agent", "steps", "seconds of work", "steps/s", "simulate", "act", "learn", "measurements",
                  "score over training, %", "of the final policy, %"], [
        [f"`{row['agent']}`", f"{row['steps']:,}", f"{row['took']:.0f}", f"{row['steps'] / row['took']:,.0f}",
         *_shares(row["seconds"], row["took"]), f"{row['seconds']['evaluate'] / row['took']:.0%}",
         str(row["score_training"]), str(row["score_policy"])]
        for row in _gpu(device="cuda") if "run" in row], "l")


def learning() -> str:
    "Success rates of three seeds after 200,000 steps, beside the untrained policy's."
    record = json.loads((BENCHMARKS / "agent_learning.json").read_text())
    before = record["untrained"]["rates"]
    rows = [[name, f"{one['rate']:.1f}", *(f"{run['rates'][name]['rate']:.1f}" for run in record["runs"])]
            for name, one in before.items()]
    rows.sort(key=lambda row: -float(row[2]))
    return table(["objective, %", "untrained", *(f"seed {run['seed']}" for run in record["runs"])], rows, "l")


def heist() -> str:
    "The gem taken in unseen small mazes, with Wilson's interval over the episodes."
    runs = json.loads((BENCHMARKS / "heist_learning.json").read_text())["runs"]
    return table(["seed", "untrained", "trained"], [
        [str(run["seed"]), *(f"{run[when][0]:.0f}% [{run[when][1]:.0f}, {run[when][2]:.0f}]"
                             for when in ("before", "after"))] for run in runs])


def continuous() -> str:
    "PPO with continuous actions beside that of stable-baselines3: the mean of the seeds, and each."
    runs, rows = json.loads((BENCHMARKS / "continuous.json").read_text())["runs"], defaultdict(list)
    for run in runs:
        rows[run["task"], run["trainer"]].append(run)
    return table(["environment", "steps", "trainer", "untrained", "trained", "each seed"], [
        [task, f"{found[0]['steps']:,}", trainer, *(f"{mean(run[when] for run in found).value:.1f}"
                                                    for when in ("before", "after")),
         ", ".join(f"{run['after']:.1f}" for run in found)] for (task, trainer), found in rows.items()], "lrlrrl")


def walker_speed() -> str:
    "Steps per second of walkers, and the ratio to Gymnasium's vector environment."
    rows = json.loads((BENCHMARKS / "walker_speed.json").read_text())["rows"]
    return table(["", "steps/s", "ratio", "steps per processor second", "ratio"], [
        [row["name"], *(text for what in ("clock", "processors")
                        for text in (f"{row[what]['steps_per_second']:,}", f"{row[what]['ratio']:.2f}"))]
        for row in rows], "l")


def envpool_speed() -> str:
    "Steps per second of EnvPool's games, and the kit's ratio to EnvPool itself."
    rows = json.loads((BENCHMARKS / "envpool_speed.json").read_text())["rows"]
    return table(["game", "EnvPool, steps/s", "envgen_nb", "ratio", "copy=False", "ratio"], [
        [row["game"], f"{row['EnvPool']['steps_per_second']:,}",
         *(text for who in ("envgen_nb", "envgen_nb, copy=False")
           for text in (f"{row[who]['steps_per_second']:,}", f"{row[who]['ratio']:.2f}"))] for row in rows], "l")


def walker_tests() -> str:
    "What the agents of the experiment `walker` solve of the levels of ACCEL's test, and their returns there."
    runs = json.loads((BENCHMARKS / "walker_tests.json").read_text())["runs"]
    levels = list(next(iter(runs.values())))
    found: dict[str, dict[str, dict[str, float]]] = {arm: {level: {} for level in levels} for arm in ARMS["walker"]}
    solved: dict[str, list[float]] = defaultdict(list)
    for name, of_run in runs.items():
        arm, seed = name.split("/")
        solved[arm] += [one["solved"] for one in of_run.values()]
        for level, one in of_run.items():
            found[arm][level][seed] = one["return"]
    return table(["worlds", *levels, "solved, %"], [
        [f"`{arm}`", *(plus_minus(mean(found[arm][level].values())) for level in levels),
         f"{100 * mean(solved[arm]).value:.1f}"] for arm in found], "l")


@cache
def readings(test: str) -> dict[str, dict[str, dict[int, float | None]]]:
    "What readers of pictures got in a test: measure → arm → seed → number; `recall CLASS` is in percent, too."
    found: dict[str, dict[str, dict[int, float | None]]] = defaultdict(lambda: defaultdict(dict))
    for run in read_jsonl(BENCHMARKS / "reader.jsonl"):
        shown = {name for name, count in run["cells"][test].items() if count >= run["shown"]}
        for arm, one in run["tests"][test].items():
            rare = {name: 100 * one["recall"][name] if name in shown else None for name in run["rare"]}
            inside = shown - set(run["hidden"])
            values = {"recall of rare classes, %": mean(rare.values()).value,
                      "IoU of all classes, %": mean(100 * one["iou"][name] for name in inside).value,
                      "read right by night, %": 100 * one["night"],
                      "distance: steps off": mean(one["steps_off"].values()).value,
                      **{f"recall {name}": value for name, value in rare.items()}}
            for measure, value in values.items():
                found[measure][arm][run["seed"]] = value
    return found


def beside_original(arms: dict[str, str], values: dict[str, dict], digits: dict[str, int]) -> str:
    """A table of readers in both tests: each measure, and how much more than that of the original game alone it is.

    arms: name → text; values: test → measure → arm → seed → number; digits: measure → decimals."""
    rows = []
    for test, said in (("original", "original game"), ("other", "other rarities")):
        for arm, text in arms.items():
            row = [said, f"`{arm}`: {text}"]
            for measure, places in digits.items():
                found = values[test][measure]
                row += [f"{mean(found[arm].values()):.{places}f}",
                        "" if arm == "original" else f"{paired(found[arm], found['original']):+.{places}f}"]
            rows.append(row)
    head = ["test", "trained on", *(text for name in digits for text in (name, "more than `original`"))]
    return table(head, rows, "ll")


def reader() -> str:
    "Readers of Crafter's pictures."
    names = [name for name in readings("original") if not name.startswith("recall ") or "," in name]
    return beside_original(READERS, {test: readings(test) for test in ("original", "other")},
                           {name: 2 if "steps" in name else 1 for name in names})


def off_road(test: str, measure: str) -> dict[str, dict[int, float]]:
    "How far readers of the road are off in a test: arm → seed → number."
    found = defaultdict(dict)
    for run in read_jsonl(BENCHMARKS / "reader_road.jsonl"):
        for arm, values in run["tests"][test].items():
            found[arm][run["seed"]] = values[measure]
    return found


def reader_road() -> str:
    "Readers of the road: how far they are off."
    heads = {"a car nearer than 20 m, m": ("near", 2), "nearer than 60 m, m": ("distance", 2),
             "marks, m": ("marks", 3), "heading, °": ("heading", 2)}
    values = {test: {head: off_road(test, name) for head, (name, _) in heads.items()} for test in ("original", "other")}
    return beside_original(DRIVERS, values, {head: digits for head, (_, digits) in heads.items()})


def reader_classes() -> Drawing:
    "Of each rare class, how much more of it is read right than by the reader of the original game alone."
    panels = {}
    for arm in list(READERS)[1:]:
        gains = {measure.removeprefix("recall "): paired(values[arm], values["original"])
                 for measure, values in readings("original").items() if measure.startswith("recall ")}
        panels[f"{arm}"] = {name.replace("of rare classes, %", "mean of these"): gain for name, gain in gains.items()
                            if gain.low is not None}
    return points(panels, "Recall of rare classes in the original game, in percentage points more than with frames of "
                  "the original game alone: ten seeds, 95% intervals", zero=True)


def language_model() -> str:
    "Eight runs with a language model beside the arms of the same version, seed by seed."
    live = read_jsonl(ROOT / "nbs" / "lab" / "experiments" / "recordings" / "live" / "results.jsonl")
    scores, returns = defaultdict(dict), defaultdict(dict)
    for record in [*live, *read_jsonl(BENCHMARKS / "paper_comparison.jsonl")]:
        if "protocol" not in record:
            scores[record["who"]][record["seed"]] = record["scores"][1:]
            returns[record["who"]][record["seed"]] = record["return"]
    names = {"live": "a language model with feedback", "plain": "plain PPO", "fixed": "fixed worlds",
             "offline": "the designer `rules`"}
    rows = [[text, *(plus_minus(mean(row[k] for row in scores[who].values())) for k in range(5)),
             plus_minus(mean(returns[who].values()))] for who, text in names.items()]
    for who in ("plain", "fixed", "offline"):
        rows.append([f"the model, more than {names[who]}", *(plus_minus(paired(
            {seed: row[k] for seed, row in scores["live"].items()},
            {seed: row[k] for seed, row in scores[who].items()}), signed=True) for k in range(5)),
            plus_minus(paired(returns["live"], returns[who]), signed=True)])
    return table(["score of the policy after", "cycle 1", "2", "3", "4", "the end", "return at the end"], rows, "l")


def experiments() -> str:
    "The kit's own experiments: what they ask, of which arms, and which of their runs are recorded."
    rows = []
    for name in own_experiments():
        one, recorded = read_experiment(name), "none"
        if name in names():
            recorded = f"[{sum(map(len, opened(name).summaries().values()))}](../../benchmarks/experiments/{name}.html)"
        rows.append([f"`{name}`", one.question, ", ".join(f"`{arm}`" for arm in one.arms),
                     str(len(one.runs())), recorded])
    return table(["experiment", "what it asks", "arms", "runs", "recorded"], rows, "lll")


def benchmark_card() -> str:
    "The protocol of the benchmark."
    one, short = benchmark.protocol(), benchmark.seeds_of(full=False)
    run, ladders = (one.settings_of(arm, one.seeds[0]) for arm in (benchmark.RANDOM, benchmark.HAND))
    preset, episodes = run.agent_preset, run.evaluation_runs * run.evaluation_episodes
    own = [run["summary"]["cost"]["seconds"] for name, record in designers()[0].items() if name in one.arms
           for run in record.runs.values()]
    each = float(np.median([sum(seconds.values()) for seconds in own])) if own else 0.0
    return table(["", f"`{one.name}`"], [
        ["game", f"`{run.simulator}`, worlds in the vocabulary `{run.vocabulary}`"],
        ["learner", f"`{run.learner}`, preset `{run.preset}`: {preset.num_envs} games, rollouts of "
                    f"{preset.batch // preset.num_envs} steps in each"],
        ["budget of a run", f"{run.total_steps:,} environment steps"],
        ["how often the designer is asked", f"{run.num_cycles} times, before each {run.cycle_steps:,} steps; a reply "
                                            f"with complaints goes back at most {run.max_reasks} times"],
        ["what it writes", f"{run.num_worlds} worlds, or ladders"],
        ["what it reads", f"`feedback = \"{run.feedback}\"`: success rates, what happened in its worlds and stages, "
                          "and what was missing in the original game"],
        ["where its worlds are played", f"in {run.mixture_ratio:.0%} of the games, to the end: curriculum "
                                        f"`{run.curriculum}`, of ladders `{ladders.curriculum}`"],
        ["a measurement", f"{episodes} episodes of the original game, before the training and after each cycle; the "
                          "last one counts, on maps of its own"],
        ["seeds, full form", f"{one.seeds[0]} to {one.seeds[-1]}"],
        ["seeds, short form", f"{short[0]} to {short[-1]}"],
        *([["time of the short form on two cores", f"{duration(each * -(-len(short) // 2))}, by the median of the "
                                                   "recorded runs"]] if own else [])], "ll")


def benchmark_table(full: bool) -> str:
    "The recorded designers, and in words what they are."
    found, _ = designers()
    text = benchmark.table(found, full)
    for name, record in found.items():
        said = DESIGNERS.get(name, record.about)
        text = re.sub(rf"^\| `{re.escape(name)}` *", lambda _, name=name, said=said: f"| `{name}`: {said} ", text,
                      flags=re.MULTILINE) if said else text
    return text


@cache
def designers() -> tuple[dict[str, benchmark.Record], dict[str, tuple[int, ...]]]:
    "The recorded designers, and the seeds of the longest form that each has."
    found = benchmark.own_records()
    return found, {name: benchmark.seeds_of(benchmark.form(record) == "full") for name, record in found.items()}


def gained(name: str) -> Estimate:
    "The gain in score of a recorded designer."
    found, seeds = designers()
    return benchmark.gain_of(found[name], found, SCORE, seeds[name])


def ahead(name: str, base: str, measure: str) -> Estimate:
    "How much more one recorded designer has than another."
    found, seeds = designers()
    return benchmark.difference(*(benchmark.units(found[one], measure, seeds[one]) for one in (name, base)))


def designer_gains() -> Drawing:
    "What each recorded designer gains, the best one first."
    found, seeds = designers()
    gains = {name: gained(name) for name in found if name not in (benchmark.RANDOM, benchmark.HAND)}
    best = sorted(gains, key=lambda name: -gains[name].value)
    said = {name: f"{name} ({len(seeds[name])} seeds)" for name in best}
    return points({"gain in score": {said[name]: gains[name] for name in best},
                   "return, more than random": {said[name]: ahead(name, benchmark.RANDOM, RETURN) for name in best}},
                  "0: random worlds; a gain of 1: ladders that a person wrote. Mean and 95% interval")


def records() -> str:
    "The experiments that are recorded, and what their first measure and the return show beside the baseline."
    rows = []
    for folder in map(opened, names()):
        one, shown = folder.experiment, []
        runs = runs_of(one.name)
        for measure in dict.fromkeys((one.measures[0], RETURN)):
            values = measured(one.name, measure)
            gains = {arm: paired(values[arm], values[one.baseline]) for arm in runs if arm != one.baseline}
            clear = [f"`{arm}` {gain:+.1f}" for arm, gain in gains.items()
                     if gain.low is not None and not gain.low <= 0 <= gain.high]
            shown.append(f"{measure}: {', '.join(clear) or 'no difference could be shown'}")
        rows.append([f"[`{one.name}`]({one.name}.html)", one.question,
                     f"{sum(map(len, runs.values()))} of {len(one.runs())}",
                     f"more than `{one.baseline}`, {'; '.join(shown)}" if one.baseline in runs else
                     f"`{one.baseline}`, with which the others are compared, has not been run"])
    return table(["experiment", "question", "runs", "what was shown"], rows, "llrl")


def placeholders() -> str:
    "The placeholders of prompt templates, as the kit knows them."
    return table(["placeholder", "what is filled in"], [[f"`{{{{{name}}}}}`", text] for name, text in
                                                        PLACEHOLDERS.items()], "ll")


TABLES = {"make run": make_run, "make run, six rows": make_run_short, "paper, short": paper_short,
          **{name: partial(experiment, name) for name in ARMS}, "steps played": steps_played,
          "skills": partial(skills, {("transfer", "steps"): "1.96M: ", ("transfer_4m", "steps"): "4M: "}),
          "ladders, skills": partial(skills, {("ladders", "corrected"): "", ("ladders", "once"): ""}),
          **{name: roles_crafter if name == "roles_crafter" else partial(roles, name)
             for name in TASKS if name in names()},
          "ladders": partial(ladders, "ladders"), "ladders, 4m": partial(ladders, "ladders_4m"),
          "chain": partial(chain, "chain.json"), "chain, 4m": partial(chain, "chain_4m.json"),
          "backward tuning": backward_tuning, "presets": presets, "learning": learning, "tuning": tuning,
          "screened": screened, "human": human, "human, skills": human_skills, "pixels": from_pixels, "sleep": sleep,
          "lacking": lacking, "plants": plants, "train turns": train_turns, "limit": limit,
          "operations": operations, "learners": learners,
          "learners, measured": learners_measured, "learners, worlds": learners_worlds,
          "learners, pixels": learners_pixels, "gpu, speed": gpu_speed, "gpu, runs": gpu_runs,
          "heist": heist, "continuous": continuous, "walker speed": walker_speed, "walker, tests": walker_tests,
          "envpool speed": envpool_speed, "reader": reader,
          "reader, road": reader_road,
          "language model": language_model,
          "placeholders": placeholders, "experiments": experiments,
          "benchmark, card": benchmark_card, "benchmark": partial(benchmark_table, full=True),
          "benchmark, short": partial(benchmark_table, full=False), "records": records}


def _more(name: str, arm: str, base: str, measure: str = SCORE) -> Estimate:
    "How much more one arm of an experiment has than another."
    values = measured(name, measure)
    return paired(values[arm], values[base])


def _end(name: str, arm: str) -> float:
    "The mean score at the end of an arm."
    return mean(measured(name, SCORE)[arm].values()).value


@cache
@cache
def quotes() -> list[tuple[str, str, list[Any]]]:
    "The numbers in sentences: page, the words around them, and what they are."
    runs = json.loads((BENCHMARKS / "learners.json").read_text())
    pixels, (_, shaped, ad) = _pixels(), PIXELS
    plain, long = opened("transfer").summaries()["plain"].values(), opened("transfer_4m").summaries()["plain"].values()
    length = mean(one["steps"][-1] / one["training"]["episodes"] for one in plain).value
    whole = opened("transfer").summaries()["steps"]
    steps, read = next((one["steps"][-1], one["fed_back"]["measurements"]) for one in whole.values())
    there = steps + read * 300 * length
    near = min(range(17), key=lambda k: abs(next(iter(long))["steps"][k] - there))

    def learner(arm: str, base: str, which: str = "score_policy", k: int = 1) -> Estimate:
        return paired(_by_seed(runs[arm], which, k), _by_seed(runs[base], which, k))

    def pixel(which: str) -> Estimate:
        return paired(*({seed: run[which] for seed, run in pixels[key].items()} for key in (ad, shaped)))

    def alone(arm: str, measure: str, name: str = "learners") -> Estimate:
        return mean(measured(name, measure)[arm].values())

    def ladders(arm: str, other: str, name: str = "ladders") -> list[Estimate]:
        return [_more(name, arm, other, measure) for measure in (SCORE, RETURN)]

    def sooner(arm: str) -> Estimate:
        "Thousands of steps to 80% less half of those of PPO alone."
        steps = measured("roles_door_key", TO_80)
        return paired({seed: step / 1000 for seed, step in steps[arm].items()},
                      {seed: step / 2000 for seed, step in steps["none"].items()})

    def more_read(arm: str, base: str = "original", test: str = "original",
                  measure: str = "recall of rare classes, %") -> Estimate:
        found = readings(test)[measure]
        return paired(found[arm], found[base])

    pickaxe = measured("transfer_4m", "success at make_iron_pickaxe")
    rare = readings("original")["recall of rare classes, %"]

    retained = "rarity_coef 1, retention_lr 2.5"

    def later(arm: str, base: str, what: str = "scores", k: int = 5) -> Estimate:
        "The lead of an arm of `human` after its first, second … measurement."
        return paired(*({seed: run[what][k] for seed, run in runs_of("human")[one].items()} for one in (arm, base)))

    def waits(*which: Any) -> Estimate:
        "A share of the episodes in one of the plant worlds."
        return mean(_waited(*which).values(), PERCENT)

    def in_game(arm: str, base: str, which: str) -> Estimate:
        return paired(*({seed: run[which] for seed, run in _plants()[one].items()} for one in (arm, base)))

    player = json.loads((BENCHMARKS / "crafter_player.json").read_text())

    return [
        ("README.md", "`fixed` is ahead of `random` by {:.1f} in area: one reply for",
         [_more("paper", "fixed", "random", AREA)]),
        ("README.md", "beside the best plain PPO: score {:.1f}, {:+.1f}, return {:+.1f};",
         [_end("ladders", "once"), *ladders("once", "plain")]),
        ("README.md", "has {:.1f} (return {:.1f}) at ten million steps, PPO {:.1f} ({:.1f}); a person's or a "
         "model's ladders add nothing shown, to PPO {:+.1f} and {:+.1f}; human",
         [*(alone(arm, what, "human").value for arm in ("rare", "ppo") for what in (SCORE, RETURN)),
          later("ppo_hand", "ppo"), later("ppo_model", "ppo")]),
        ("results_human", "`ppo_hand` less `ppo`, paired by seed: {:+.1f} in score at two million steps, {:+.1f} "
         "at four, {:+.1f} at ten, where it is {:+.1f} in return",
         [*(later("ppo_hand", "ppo", k=k) for k in (1, 2, 5)), later("ppo_hand", "ppo", "returns")]),
        ("results_human", "`ppo_model` less `ppo`: {:+.1f} in score at two million steps, {:+.1f} at four, {:+.1f} at "
         "ten, in return {:+.1f}, {:+.1f} and {:+.1f};",
         [later("ppo_model", "ppo", what, k) for what in ("scores", "returns") for k in (1, 2, 5)]),
        ("results_human", "a person's is shown, {:+.1f} in score and {:+.1f} in return; at two million steps they are "
         "behind, {:+.1f} and {:+.1f}.",
         [later("ppo_model", "ppo_hand", what, k) for k in (5, 1) for what in ("scores", "returns")]),
        ("results_human", "`rare_hand` less `rare`: {:+.1f}, {:+.1f} and {:+.1f}, where it is {:+.1f} in return;",
         [*(later("rare_hand", "rare", k=k) for k in (1, 2, 5)), later("rare_hand", "rare", "returns")]),
        ("results_human", "`rare_model` less `rare`: {:+.1f}, {:+.1f} and {:+.1f}, in return {:+.1f}; less `rare_hand` "
         "{:+.1f} at ten",
         [*(later("rare_model", "rare", k=k) for k in (1, 2, 5)), later("rare_model", "rare", "returns"),
          later("rare_model", "rare_hand")]),
        ("results_human", "ahead of PPO alone by {:+.1f} (return {:+.1f}), and of PPO with the ladders by {:+.1f} "
         "(return {:+.1f})",
         [later("rare", base, what) for base in ("ppo", "ppo_hand") for what in ("scores", "returns")]),
        ("results_human", "PPO has {:.1f} at ten million steps, with a person's ladders {:.1f}.",
         [_end("human", "ppo"), _end("human", "ppo_hand")]),
        ("results_human", "under the curve of ten million steps {:+.1f}, and 0 is",
         [_more("human", "rare_hand", "rare", AREA)]),
        *((page, text, [mean(sorted(_after("rare", "scores").items())[2][1]), later("rare_hand", "rare", k=2)])
          for page, text in (
            ("human", "without the ladders it is {:.1f}, and that they help was not shown, {:+.1f}."),
            ("results_ladders", "{:.1f} after four million steps alone, and a person's ladders add {:+.1f}, the"))),
        ("gallery", "Its score at the end is {:.1f}, the mean of the ten seeds {:.1f}.",
         [runs_of("human")["rare_hand"][970]["scores"][-1], _end("human", "rare_hand")]),
        ("results_ladders", "the model's of this page {:+.1f} ([beyond", [later("rare_model", "rare", k=2)]),
        ("human", "ten seeds have {:.1f} after four million steps",
         [mean(sorted(_after("rare_hand", "scores").items())[2][1])]),
        ("results_human", "and has {:.1f} after ten million: without", [_end("human", "rare")]),
        ("results_human", "{:.1f} at ten million steps and {:.1f} at four.",
         [mean(values) for _, values in sorted(_after("rare", "scores").items())[:1:-3]]),
        ("results_human", "agents of `rare` in [`human`](#ten-million-steps): V is {:.1f}, they wake up in {:.1f}% of "
         "the episodes, with sleep put in in {:.1f}%, which changes the discounted return by {:+.1f}, the return by "
         "{:+.1f}.",
         [_late("value"), _late("wake_up", 0), _late("wake_up", 1), _late("more", "discounted", 0),
          _late("more", "return", 0)]),
        ("results_human", "planted in {:.1f}% of the episodes; in {:.1f}% of these no plant is left at the end, in "
         "{:.1f}% 300 steps and more follow, but by then the plant has grown for {:.1f} steps (medians of the agents): "
         "the agent has gone away. In {:.1f}% a plant gets ripe at all.",
         [_late("lacking", "gardens", name) for name in ("planted", "gone", "late", "grown", "ripe")]),
        ("results_human", "At ten million steps a diamond is in sight in {:.1f}% of the episodes, an iron pickaxe in "
         "the bag in {:.1f}%, both in {:.1f}%.",
         [_late("lacking", "held", name) for name in (
             "diamond in sight", "iron pickaxe in the bag", "iron pickaxe in the bag and diamond in sight")]),
        *(("results_human", words, [mean(run["success"][skill][k] for run in runs_of("human")["rare"].values()).value
                                    for k in range(1, 6)])
          for skill, words in (
              ("collect_diamond", "one is collected in {:.1f}, {:.1f}, {:.1f}, {:.1f} and {:.1f}% of"),
              ("wake_up", "and stays: {:.1f}, {:.1f}, {:.1f}, {:.1f} and {:.1f}%.)"))),
        ("results_human", "of thirst die {:.1f}%, of a zombie {:.1f}%.",
         [_late("lacking", "deaths", name) for name in ("thirst", "zombie")]),
        ("results_agent", "at once: {:.2f} ({:.2f} to {:.2f}) of the steps per CPU second", [
            measure(_ratios("PPO: `symbols-long` beside `symbols`")) for measure in (median, min, max)]),
        ("results_human", "wakes up in {:+.1f} percentage points more of its episodes,",
         [_changes("gamma 0.99, gae_lambda 0.9", "wake_up")]),
        ("results_human", "and its score at the end changes by {:+.1f} (below;",
         [_changes("gamma 0.99, gae_lambda 0.9", "score_policy")]),
        ("results_human", "the score over the training is higher by {:.1f}; at the end it may be, {:+.1f}, and so may "
         "sleep: {:+.1f} percentage points of the episodes. With c = 2 there is more sleep, {:+.1f},",
         [*(_changes("rarity_coef 1", which) for which in ("score_training", "score_policy", "wake_up")),
          _changes("rarity_coef 2", "wake_up")]),
        ("results_human", "wakes up in {:.1f}% of its episodes, {:+.1f} more than with `rarity_coef` alone; the return "
         "changes by {:+.1f}, the score at the end by {:+.1f}, the rate of the iron pickaxe by {:+.1f}",
         [mean(_changed(retained, "wake_up").values()), *(_changes(retained, which, "rarity_coef 1") for which in (
             "wake_up", "return_policy", "score_policy", "make_iron_pickaxe"))]),
        ("results_human", "whose advantages are added, brings sleep back, {:+.1f}; that",
         [_changes("a second critic with γ 0.99, λ 0.9; the sum of both advantages", "wake_up")]),
        ("results_human", "alone eats {:.1f}% of the plants that need 301 steps where there are no zombies, with γ "
         "0.997 and λ 0.95 {:.1f}%: {:+.1f} percentage points,",
         [waits("alone", 0, "none"), waits("alone_0.997", 0, "none"), paired(*(
             _waited(arm, 0, "none") for arm in ("alone_0.997", "alone")))]),
        ("results_human", "in these episodes {:.1f}% get ripe.", [waits("alone", 0, "none", "ripe")]),
        ("results_human", "eat {:.1f}% where zombies are few, and {:.1f}% where there are as many as in the game; "
         "there a zombie kills them in {:.1f}% of the episodes.",
         [waits("alone", 0, "rare"), waits("alone", 0, "common"), waits("alone", 0, "common", "zombie")]),
        ("results_human", "need 81 steps they eat {:.1f}%. Thirst comes next: without zombies they die of it in "
         "{:.1f}% of", [waits("alone", 220, "common"), waits("alone", 0, "none", "thirst")]),
        ("results_human", "`ppo-rare` eats {:.1f}% of the plants that need 81 steps, not more than in the game alone "
         "({:.1f}%). With novelty rewarded in the original game alone it is {:.1f}%, {:+.1f} percentage points, and "
         "the score in the game changes by {:+.1f}.",
         [*(waits(arm, 220, "common") for arm in ("half", "rare", "half_no_novelty")),
          paired(*(_waited(arm, 220, "common") for arm in ("half_no_novelty", "half"))),
          in_game("half_no_novelty", "half", "score")]),
        ("results_human", "eats {:+.1f} percentage points more of the plants that need 81 steps, {:+.1f} of those that "
         "need 301 where there are no zombies, {:+.1f} where there are as many as in the game. The score in the game "
         "changes by {:+.1f}, the return by {:+.1f}.",
         [*(paired(*(_waited(arm, *one) for arm in ("far_half", "half_no_novelty")))
            for one in ((220, "common"), (0, "none"), (0, "common"))),
          *(in_game("far_half", "half_no_novelty", which) for which in ("score", "return"))]),
        ("results_human", "a plant is eaten in {:.1f}, {:.1f}, {:.1f} and {:.1f}% of the episodes (the last four "
         "rows), beside {:.1f}% of", [mean(run["game"]["eaten"] for run in _plants()[arm].values()).value
                               for arm in ("half", "half_no_novelty", "far_half", "far", "rare")]),
        ("results_human", "their score is lower, by {:.1f} with novelty",
         [in_game("rare", "half_no_novelty", "score")]),
        ("results_human", "eats one in {:.1f}% of its episodes, and these last {:.1f} steps",
         [player["success"]["eat_plant"], player["length"]]),
        ("results_human", "by {:+.1f} in score; in return no difference was shown, {:+.1f}. After "
         "one million it was not shown, {:+.1f}.",
         [*(_more("pixels", "rare_hand", "ppo", measure) for measure in (SCORE, RETURN)),
          paired(*({seed: run["scores"][1] for seed, run in runs_of("pixels")[arm].items()}
                   for arm in ("rare_hand", "ppo")))]),
        ("results_human", "PPO has {:.1f} after one million steps, in this shape {:.1f}, and Achievement Distillation, "
         "in this shape, too, {:.1f} ([from", [mean(run["score_policy"] for run in pixels[key].values())
                                        for key in (("ppo", "{}"), shaped, ad)]),
        ("README.md", "is {:+.1f} beside that PPO, return {:+.1f}; at four million steps {:.1f} above `symbols`, "
         "return {:+.1f}:",
         [learner("ppo-worlds", BEST), _more("learners", "ppo-worlds", BEST, RETURN),
          *(_more("transfer_4m", "steps", "plain", measure) for measure in (SCORE, RETURN))]),
        ("README.md", "learns sooner with a model's ladders: {:+.1f} in score, {:+.1f} in return after half",
         [_more("walker", "model", "plain", measure) for measure in (SCORE, RETURN)]),
        ("results_ladders", "a score of {:.1f} where plain PPO has {:.1f}, {:+.1f} over ten seeds, at the same return "
         "({:+.1f})",
         [_end("ladders", "once"), _end("ladders", "plain"), *ladders("once", "plain")]),
        ("results_ladders", "or better: {:+.1f} in score, {:+.1f} in return", ladders("once", "hand")),
        ("results_ladders", "ahead of plain PPO, too ({:+.1f}, return {:+.1f}), and behind those that were left alone "
         "by {:.1f}", [*ladders("corrected", "plain"), ladders("once", "corrected")[0]]),
        ("results_ladders", "nothing that ten seeds show ({:+.1f})", ladders("lessons", "corrected")[:1]),
        ("results_ladders", "the model's ladders reach {:.1f}, {:+.1f} over plain PPO at its return",
         [_end("ladders", "rare"), ladders("rare", "plain")[0]]),
        ("results_ladders", "never corrected by {:.1f}; that they are behind those of the run itself is not shown "
         "({:.1f})",
         [ladders("once", "placebo")[0], ladders("corrected", "placebo")[0]]),
        ("results_ladders", "At four million steps they end at {:.1f},", [_end("ladders_4m", "rare")]),
        ("results_ladders", "human experts, at {:.1f}: {:+.1f} over plain PPO in score, {:+.1f} in return",
         [_end("ladders_4m", "rare"), *ladders("rare", "plain", "ladders_4m")]),
        ("results_ladders", "with PPO at {:.1f} ({:+.1f} over plain PPO, return {:+.1f}), those that a person wrote at "
         "{:.1f} ({:+.1f}, return {:+.1f})",
         [found for arm in ("lessons", "hand")
          for found in (_end("ladders_4m", arm), *ladders(arm, "plain", "ladders_4m"))]),
        ("results_ladders", "between the two is {:+.1f} in score and {:+.1f} in return",
         ladders("lessons", "hand", "ladders_4m")),
        ("results_frames", "reads {:.1f}% of the cells of rare classes right where one of the original game alone "
         "reads {:.1f}%: {:+.1f} percentage points; with worlds that are chosen by rule, {:+.1f}.",
         [*(mean(rare[arm].values()) for arm in ("model", "original")), more_read("model"), more_read("rules")]),
        ("results_frames", "(`envgen frames --balance class`) give {:+.1f}, with", [more_read("balanced")]),
        ("results_frames", "not shown to help ({:+.1f})", [more_read("random")]),
        ("results_frames", "ahead of `balanced` ({:+.1f}), `model` is by {:+.1f};",
         [more_read(arm, "balanced") for arm in ("rules", "model")]),
        ("results_frames", "the order is the same: `model` {:+.1f}, `rules` {:+.1f}, `balanced` {:+.1f}, `random` "
         "{:+.1f}.", [more_read(arm, test="other") for arm in ("model", "rules", "balanced", "random")]),
        ("results_frames", "is better, by {:+.1f} percentage points;",
         [more_read("model", measure="read right by night, %")]),
        ("results_frames", "named before**: {:+.1f} m for cars",
         [paired(off_road("original", "near")["critical"], off_road("original", "near")["original"])]),
        ("results_frames", "it is off by {:+.1f} m. Random",
         [paired(off_road("original", "near")["critical"], off_road("original", "near")["random"])]),
        ("walker", "terrain that is designed as ladders helps at the beginning: {:+.1f} percentage points of score "
         "over plain PPO for those of a person, {:+.1f} for those of a language model",
         [_more("walker", arm, "plain") for arm in ("hand", "model")]),
        ("results_roles", "(thousands of steps less than that half: {:+.1f})", [sooner("teacher")]),
        ("results_roles", "was or higher: {:+.1f} and {:+.1f} percentage points",
         [_more(name, "teacher", "none") for name in ("roles_door_key", "roles_blocked")]),
        ("results_roles", "colours**: {:+.1f} percentage points",
         [_more("roles_coloured_keys", "designer", "none", AREA)]),
        ("results_roles", "has a return of {:.1f} in each episode, more",
         [mean(measured("roles_crafter", RETURN)["player"].values())]),
        ("results_roles", "PPO has {:.1f} after 262,144 steps, and a teacher adds {:+.1f} to it",
         [mean(measured("roles_crafter", RETURN)["none"].values()), _more("roles_crafter", "teacher", "none", RETURN)]),
        ("results_roles", "in Crafter they cost {:+.1f} of the return",
         [_more("roles_crafter", "designer", "none", RETURN)]),
        ("results_roles", "ladders has a return of {:.1f} after", [
            mean(measured("ladders_4m", RETURN)["rare"].values())]),
        ("results_roles", "possible has a return of {:.1f}, with",
         [mean(measured("roles_crafter", RETURN)["any_option"].values())]),
        ("results_roles", "is not shown to help ({:+.1f}), and costs score over the training ({:+.1f})",
         [_more("roles_crafter", "uniform", "none", measure) for measure in (RETURN, AREA)]),
        ("results_roles", "With two doors it is {:+.1f}, and", [_more("roles_two_doors", "uniform", "none", AREA)]),
        ("results_roles", "its key and {:+.1f} with two doors", [_more("roles_two_doors", "shuffled", "none", AREA)]),
        ("results_roles", "it is in between: {:+.1f}, half", [_more("roles_coloured_keys", "uniform", "none", AREA)]),
        ("results_roles", "no harm that is shown: {:+.1f}.", [_more("roles_coloured_keys", "shuffled", "none", AREA)]),
        ("results_roles", "leads on: {:+.1f} with a door", [_more("roles_door_key", "uniform", "none", AREA)]),
        ("results_roles", "in half of PPO's steps ({:+.1f} thousand)", [sooner("uniform")]),
        ("results_roles", "worth little: {:+.1f} behind", [_more("roles_blocked", "uniform", "none", AREA)]),
        ("results_roles", "too little time left: {:+.1f} with a", [_more("roles_door_key", "shuffled", "none", AREA)]),
        ("benchmark", "`claude-ladders-once` gains {:.2f}, `claude-worlds` {:.2f}", [
            gained("claude-ladders-once"), gained("claude-worlds")]),
        ("benchmark", "in return the former is ahead of the person's by {:.1f}",
         [ahead("claude-ladders-once", "hand", RETURN)]),
        ("benchmark", "Plain PPO is at {:.2f}: a", [gained("plain").value]),
        ("benchmark", "Plain PPO gains {:.2f}", [gained("plain")]),
        ("benchmark", "Beside plain PPO the score is {:+.1f} with these ladders and {:+.1f} with these worlds, the "
         "return {:+.1f} and {:+.1f}:", [ahead(name, "plain", measure) for measure in (SCORE, RETURN)
                                 for name in ("claude-ladders-once", "claude-worlds")]),
        ("benchmark", "has read measurements of {:.2f} million steps", [
            mean(run["summary"]["fed_back"]["steps"] for run in designers()[0]["claude-worlds"].runs.values()
                 ).value / 1e6]),
        ("results_worlds", "in half of the games: {:+.1f} in score, {:+.1f} in return ([the benchmark]",
         [ahead("claude-worlds", "plain", measure) for measure in (SCORE, RETURN)]),
        ("as_published", "`model` is {:+.1f} above plain PPO in score and {:+.1f} in return",
         [_more("published", "model", "plain", measure) for measure in (SCORE, RETURN)]),
        ("as_published", "over the training `fixed` is ahead by {:+.1f}.",
         [_more("published", "fixed", "plain", AREA)]),
        ("as_published", "`fixed` leads by {:+.1f}. Which", [_more("paper", "fixed", "plain", AREA)]),
        ("as_published", "the same model without them, by {:+.1f} in score and {:+.1f} in return",
         [_more("published", "model", "model_without", measure) for measure in (SCORE, RETURN)]),
        ("as_published", "instead of random worlds: {:+.1f} and {:+.1f}.",
         [_more("published", "model", "random", measure) for measure in (SCORE, RETURN)]),
        ("as_published", "and is at {:.1f} without", [_end("published", "plain")]),
        ("results_worlds", "`rules` differs from `fixed` by {:+.1f} in area and by {:+.1f} in score at the end",
         [_more("paper", "rules", "fixed", AREA), _more("paper", "rules", "fixed")]),
        ("results_worlds", "`fixed` by {:.1f} in area, and by {:+.1f} in score and {:+.1f} in "
         "return at the end", [_more("paper", "fixed", "random", measure) for measure in (AREA, SCORE, RETURN)]),
        ("results_worlds", "random ones give {:+.1f} where `fixed` gives {:+.1f} and `rules` {:+.1f}",
         [_more("paper", arm, "plain", AREA) for arm in ("random", "fixed", "rules")]),
        ("results_worlds", "ahead of plain PPO by an interval, by {:+.1f} in score",
         [_more("transfer_parts", "constant", "plain")]),
        ("results_worlds", "in another shape of rollouts, `symbols-long`, it has {:.1f} and {:.1f} with the seeds of "
         "`learners`, {:.1f} and {:.1f} with those of `ladders`",
         [alone(arm, measure, name) for arm, name in ((BEST, "learners"), ("plain", "ladders"))
          for measure in (SCORE, RETURN)]),
        ("results_worlds", "rules that read training episodes are ahead of plain PPO by {:+.1f} in area,",
         [_more("counted", "rules_training", "plain", AREA)]),
        ("results_worlds", "between the two is {:+.1f} in area, {:+.1f} in score and {:+.1f} in return",
         [_more("counted", "rules_training", "rules", measure) for measure in (AREA, SCORE, RETURN)]),
        ("results_worlds", "90% costs {:.1f} of the area under the curve",
         [_more("mixture", "share-50", "share-90", AREA)]),
        ("results_worlds", "the two iron tools make {:.1f}% of the gain in the logarithm of the score at 1.96 million "
         "steps and {:.1f}% at four", [tools_share("transfer"), tools_share("transfer_4m")]),
        ("results_worlds", "waking up by {:+.1f} points, planting by {:+.1f} and saplings by {:+.1f}",
         [_more("transfer", "steps", "plain", f"success at {skill}").value
          for skill in ("wake_up", "place_plant", "collect_sapling")]),
        ("results_worlds", "At four million waking up falls by {:.1f}",
         [_more("transfer_4m", "plain", "steps", "success at wake_up")]),
        ("results_worlds", "plain PPO gains {:.1f} over the end of `transfer`, `steps` gains {:.1f}.",
         [_end("transfer_4m", arm) - _end("transfer", arm) for arm in ("plain", "steps")]),
        ("results_worlds", "(the interval of the pickaxe begins at {:.1f}%)", [mean(pickaxe["steps"].values()).low]),
        ("results_worlds", "whose mean length is {:.1f} steps, they are {:.1f} million steps, and `steps` has played "
         "{:.1f} million for what is shown at 1.96. Plain PPO of `transfer_4m` has a score of {:.1f} and a return of "
         "{:.1f} after {:.1f} million, `steps` {:.1f} and {:.1f}",
         [length, read * 300 * length / 1e6, there / 1e6, mean(one["scores"][near] for one in long),
          mean(one["returns"][near] for one in long), next(iter(long))["steps"][near] / 1e6,
          *(alone("steps", measure, "transfer") for measure in (SCORE, RETURN))]),
        ("results_worlds", "(`symbols-long`, fresh seeds) PPO with the worlds of `steps` is not shown to be ahead in "
         "score at this budget, {:+.1f}, and is behind in return, {:+.1f}", [
             learner("ppo-worlds", BEST), _more("learners", "ppo-worlds", BEST, RETURN)]),
        ("results_agent", "that is a difference of {:+.1f} in score and {:+.1f} in return, since", [
            learner(BEST, "ppo"), _more("learners", BEST, "ppo", RETURN)]),
        ("results_learners", "a score of {:.1f} and a return of {:.1f}, has the highest mean",
         [alone(BEST, SCORE), alone(BEST, RETURN)]),
        ("results_learners", "`ppo` has two seeds that end at {:.1f} and {:.1f}: its mean is {:.1f}, its interquartile "
         "mean {:.1f}", [*sorted(measured("learners", SCORE)["ppo"].values())[:2],
                                alone("ppo", SCORE).value, iqm(measured("learners", SCORE)["ppo"].values()).value]),
        ("results_learners",
         "It is {:.1f} ahead after a million steps ({:.1f} over the training until then), and at the end it is not: "
         "{:+.1f}.", [learner("ad", "ppo-long", *which) for which in (
             ("score_policy", 0), ("score_training", 0), ("score_policy", 1))]),
        ("results_learners", "In return none of them is ahead of it by an interval above zero; `ppo` with designed "
         "worlds is behind by {:.1f}, with memory by {:.1f}", [_more("learners", BEST, arm, RETURN)
                                                     for arm in ("ppo-worlds", "memory-worlds")]),
        ("results_learners", "{:.1f} higher than PPO with them, paired", [learner("rare", "ppo-worlds")]),
        ("results_learners", "smallest spread; that it is better than `symbols` is not shown ({:+.1f} in score).",
         [learner(BEST, "ppo")]),
        ("results_learners", "that PPO gains less is not shown (a difference of {:+.1f}), and", [paired(*(
            {seed: end - before[seed] for seed, end in after.items()} for after, before in (
                (_by_seed(runs[f"{arm}-worlds"], "score_policy", 1), _by_seed(runs[arm], "score_policy", 1))
                for arm in ("ad", "ppo"))))]),
        ("results_learners", "of `symbols-long` it ends at {:.1f} with a return of {:.1f} on", [
            mean(one[which] for one in read_jsonl(BENCHMARKS / "agent_tuning.jsonl")
                 if one.get("learner") == "ppo-memory" and one["preset"] == "symbols-long")
            for which in ("score_policy", "return_policy")]),
        ("results_learners", "of `symbols-long` it is not ({:+.1f}; {:+.1f})",
         [learner("memory", BEST, "score_training"), learner("memory", BEST)]),
        ("results_learners", "it is ahead of `symbols` over the training ({:+.1f}), and at the end it may be ({:+.1f})",
         [learner("memory", "ppo", "score_training"), learner("memory", "ppo")]),
        ("results_learners", "it is ahead by {:.1f} over the training, and by {:.1f} at the end",
         [pixel("score_training"), pixel("score_policy")])]


def quoted(page: Path, text: str) -> str:
    "A page with the numbers in its sentences made anew."
    for name, words, numbers in quotes():
        if page == ROOT / name or page.parent.name == "guides" and page.stem == name:
            pattern = re.sub(r"\\{:.*?\\}", lambda _: r"[-+]?\d+\.\d+( \[[^]]*\])?", re.escape(words))
            text, found = re.subn(pattern, words.format(*numbers), text)
            assert found == 1, f"{page.name}: {found} times {words!r}"
    return text


def next_goal() -> str:
    "How often a linear probe finds which achievement comes next, from the features of each agent."
    agents = read_jsonl(BENCHMARKS / "next_goal_probe.jsonl")
    goals = [goal for goal in agents[0]["by_goal"]
             if all(agent["by_goal"].get(goal, [0])[0] >= 50 for agent in agents)]
    goals.sort(key=lambda goal: -agents[0]["by_goal"][goal][1])
    rows, traces = ["all of them", *goals], []
    for agent, colour in zip(agents, COLOURS, strict=False):
        name = f"{agent['learner']}, {_said(agent['changes'])}"
        right = [agent["right"], *(agent["by_goal"][goal][1] for goal in goals)]
        traces.append(go.Scatter(x=right, y=rows, name=name, mode="markers", marker={"size": 10, "color": colour},
                                 text=[f"{name}: {row} {value:.1f}%" for row, value in zip(rows, right, strict=True)]))
        traces.append(go.Scatter(x=[agent["constant"]], y=rows[:1], legendgroup=name, showlegend=False, mode="markers",
                                 marker={"size": 9, "color": colour, "symbol": "circle-open"}))
    figure = chart(traces, x_title="% of steps found rightly", height=80 + 26 * len(rows), above=True)
    figure.update_xaxes(range=[0, 100]).update_yaxes(categoryarray=rows[::-1])
    return svg(figure, width=960, title="How often the next achievement is found")


def waiting() -> Drawing:
    "How often a plant is eaten, by the steps that it takes to get ripe: without zombies, and with them."
    worlds, panels = next(iter(_plants()["rare"].values()))["worlds"], []
    names = {"alone": "PPO, plants alone", "rare": "game alone", "half": "half",
             "half_no_novelty": "half, novelty in game only", "far_half": "and second critic"}
    for zombies, title in (("none", "No zombies"), ("common", "Zombies as in the game")):
        ages = sorted((one["grown"] for one in worlds if one["zombies"] == zombies), reverse=True)
        traces = [trace for (arm, name), colour in zip(names.items(), COLOURS, strict=False)
                  for trace in estimate_traces(Series(name, [301 - grown for grown in ages], [
                      mean(_waited(arm, grown, zombies).values(), PERCENT) for grown in ages], colour), band=False)]
        panels.append(chart(traces, title, x_title="steps until the plant is ripe", height=320, above=True))
        panels[-1].update_xaxes(range=[0, 320]).update_yaxes(range=[0, 85])
    return svg(*panels, width=840, title="Plants that are eaten, %: means over five seeds, 95% intervals")


def over_tokens() -> Drawing:
    "Success over the training by the tokens that it took, a panel for each task; what plays pays for each episode."
    panels, episodes = [], (1, 10, 100, 1000)
    for name, title in TASKS.items():
        if name not in names():
            continue
        crafter = name == "roles_crafter"
        area = measured(name, RETURN if crafter else AREA)
        tokens = {arm: size for arm, (_, size) in role_tokens(name).items() if arm in area}
        right = tokens["player"] * episodes[-1]
        low = mean(area["none"].values())
        traces = [go.Scatter(x=[min(tokens["designer"], tokens["teacher"]) / 2, right], y=[low.value] * 2, name="none",
                             mode="lines", line={"color": COLOURS[7], "dash": "dot"})]
        for arm, colour in zip(("designer", "teacher", "both", "shuffled"), COLOURS, strict=False):
            if arm in area:
                point = Series(arm, [tokens[arm]], [mean(area[arm].values())], colour)
                traces += estimate_traces(point, band=False)
        level, unit = mean(area["player"].values()).value, "%" * (not crafter)
        traces.append(go.Scatter(x=[tokens["player"] * count for count in episodes], y=[level] * len(episodes),
                                 name="player", mode="lines+markers", line={"color": COLOURS[4]},
                                 text=[f"{counted(count, 'episode')}: {level:.1f}{unit}" for count in episodes]))
        panels.append(chart(traces, title, x_title="tokens", height=300, above=True))
        panels[-1].update_xaxes(type="log").update_yaxes(range=[-0.6, 22] if crafter else [-3, 105])
    crafter = " (Crafter: return)" * ("roles_crafter" in names())
    return svg(*panels, width=560, columns=2, title=f"Success over the training, in percent{crafter}, over a model's "
               "tokens; of a player for 1, 10, 100 and 1,000 episodes")


def figures() -> dict[Path, str]:
    "Each drawing in its file."
    paper, published, mixture = (opened(name) for name in ("paper", "published", "mixture"))
    area, end = setting_curves(mixture)
    seeds = points({measure: {LEARNERS[arm].replace("`", ""): mean(of.values()) for arm, of in
                              measured("learners", measure).items()} for measure in (SCORE, RETURN)},
                   "At the end of learners: mean of ten seeds, 95% interval, a circle for each seed", zero=False)
    return {ROOT / "docs" / f"{name}.svg": f"{alone(drawing)}\n" for name, drawing in (
        ("designed-worlds", gain_curves(paper)), ("mixture-area", area), ("mixture-end", end),
        ("next-goal", next_goal()), ("learners-end", seeds), ("paper-end", ends(paper)),
        ("published-gain", gain_curves(published)), ("published-end", ends(published)),
        ("benchmark", designer_gains()), ("transfer-end", ends(opened("transfer"))),
        ("walker-end", ends(opened("walker"))),
        ("roles", over_tokens()), ("reader", reader_classes()), ("sleep", sleepless()),
        ("plants", waiting()),
        ("human", human_curves()))}


def reports() -> dict[Path, str]:
    "The reports of recorded experiments; one that shows the same numbers stays as it is, whatever its style."
    def numbers(page: str) -> list[str]:
        return re.findall(r"[-+]?\d+\.\d+", re.sub(r"<style.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL))
    found = {}
    for name in names():
        path, page = RECORDS / f"{name}.html", report(name)
        stored = path.read_text() if path.exists() else ""
        found[path] = stored if numbers(stored) == numbers(page) else page
    return found


def filled(text: str) -> str:
    "A page with its tables made anew."
    def one(match: re.Match) -> str:
        return f"{match[1]}\n{TABLES[match[2]]()}\n{match[3]}"
    return re.sub(r"(<!-- table: (.*?) -->)\n.*?(<!-- end of table -->)", one, text, flags=re.DOTALL)


def wanted() -> dict[Path, str]:
    "What each page, each figure and each report should hold."
    return {page: quoted(page, filled(page.read_text())) for page in PAGES} | figures() | reports()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args()
    other = {path: text for path, text in wanted().items() if not path.exists() or path.read_text() != text}
    for path, text in other.items():
        print(path.relative_to(ROOT))
        if not args.check:
            path.write_text(text)
    sys.exit(bool(other and args.check))


if __name__ == "__main__":
    main()
