"""The tables and figures of README and documentation, made from the records in benchmarks/.

    python docs/tables.py           # writes them where they belong, between their two comments
    python docs/tables.py --check   # exit status 1 and the names of those that do not say what the records say
"""
import argparse
import json
import re
import sys
from collections import defaultdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from envgen_nb.designer.prompt import PLACEHOLDERS
from envgen_nb.experiment.file import own_experiments, read_experiment
from envgen_nb.experiment.folder import ExperimentFolder
from envgen_nb.game.files import read_jsonl
from envgen_nb.results import limits_of
from envgen_nb.results.charts import COLOURS, alone, chart, svg
from envgen_nb.results.figures import percents_moved
from envgen_nb.results.statistics import PERCENT, Estimate, mean, paired
from envgen_nb.studio.experiment_view import gain_curves, plus_minus, setting_curves

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from records import RECORDS, names, opened, report, unpack  # noqa: E402, F401

PAGES = (ROOT / "README.md", RECORDS / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md")))
ARMS = {      # what they are, in words
    "paper": {
        "plain": "none, PPO in the original game alone",
        "fixed": "four that a language model wrote once, in every cycle",
        "easy_to_hard": "practice worlds in a fixed order",
        "adversarial": "of 16 random worlds the four that the agent is worst in",
        "random": "four random worlds, new ones in each cycle",
        "rules": "an expert curriculum written by hand, which follows the success rates"},
    "feedback": {
        "none": "no rates in the prompt",
        "placebo": "those of another run",
        "rates": "those of this run"},
    "mixture": {
        **{f"share-{share}": f"{share}% of each cycle's steps in designed worlds, then a million steps without"
           for share in (10, 25, 50, 75, 90)},
        "constant": "a quarter of the sub-environments plays designed worlds to the last step"},
    "transfer_parts": {
        "plain": "none, PPO in the original game alone",
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
        "plain": "none, PPO in the original game alone",
        "rules": "the designer of that name, in phases",
        "frontier": "starts from moments of the agent's own episodes, in a quarter of the games",
        "together": "what was missing is given there, worlds are tried out, and chosen by what can be learned",
        "backward": "starts ever further back, in half of the games",
        "steps": "the same, with starts that are nearer to each other"}}
ARMS["transfer_4m"] = ARMS["transfer"]
RETURN = "reward at the end"
HEADS = {RETURN: "return at the end"}
FIRST = {"feedback": "feedback", "mixture": "mixture"}      # the heading of the first column, where it is not worlds


def table(head: list[str], rows: list[list[str]], align: str = "") -> str:
    "A Markdown table; `align` has a letter for each column, l or r."
    marks = ["---:" if letter == "r" else "---" for letter in align.ljust(len(head), "r")]
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in [head, marks, *rows])


def _measures(folder: ExperimentFolder) -> list[str]:
    "The measures that an experiment has named, and the return beside them."
    return [*folder.experiment.measures, RETURN]


def experiment(name: str) -> str:
    "The measures of each arm, and how much more they are than the baseline's, by pairs of the same seed."
    folder = opened(name)
    base, measures = folder.experiment.baseline, _measures(folder)
    measured = [folder.measured(measure) for measure in measures]
    head = [FIRST.get(name, "worlds")]
    head += [text for measure in measures for text in (HEADS.get(measure, measure), f"more than `{base}`")]
    rows = []
    for arm in folder.experiment.arms:
        row = [f"`{arm}`: {ARMS[name][arm]}"]
        for measure, values in zip(measures, measured, strict=True):
            row += [plus_minus(mean(values[arm].values(), limits_of(measure))),
                    "" if arm == base else plus_minus(paired(values[arm], values[base]), signed=True)]
        rows.append(row)
    return table(head, rows, "l")


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
    folder = opened("paper")
    measures = _measures(folder)
    measured = [folder.measured(measure) for measure in measures]
    return table(["worlds", *(HEADS.get(measure, measure) for measure in measures)], [
        [f"`{arm}`: {text}", *(plus_minus(paired(values[arm], values["plain"]), signed=True) for values in measured)]
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
    return table(["preset", "seeds", "over all training episodes, %", "of the final policy, %"], [
        [text, str(len(found[key])), *(plus_minus(mean(r[which] for r in found[key]))
                                       for which in ("score_training", "score_policy"))]
        for key, text in names.items()], "l")


def _said(changes: dict) -> str:
    return ", ".join(f"{name} {value}" for name, value in changes.items()) or "as it is"


DESIGNS = {      # what `ppo-rare` was made from, as it was recorded: learner and what differs from it
    "agent_designs:Novelty": ("ppo-rare", "imitation_steps 0"),
    "agent_designs:Imitation": ("ppo-rare", "novelty_coef 0"),
    "agent_designs:Imitation4": ("ppo-rare", "novelty_coef 0, imitation_steps 4"),
    "agent_designs:Both": ("ppo-rare", "as it is")}


def tuning() -> str:
    "Every setting that was tried, without designed worlds: those of most steps first, then the best."
    found = defaultdict(list)
    for record in read_jsonl(BENCHMARKS / "agent_tuning.jsonl"):
        learner, changes = DESIGNS.get(name := record.get("learner", "ppo"), (name, _said(record["changes"])))
        found[learner, record["preset"], record["steps"], changes].append(record)
    rows = []
    for (learner, preset, steps, changes), records in found.items():
        scores = [mean(record[which] for record in records) for which in ("score_training", "score_policy")]
        rows.append((steps, scores[0].value, [f"`{learner}`", f"`{preset}`", changes, f"{steps:,}", str(len(records)),
                                              *map(plus_minus, scores)]))
    rows.sort(key=lambda row: (-row[0], -row[1]))
    return table(["learner", "preset", "changed", "steps", "seeds", "over all training episodes, %",
                  "of the final policy, %"], [row for *_, row in rows], "lll")


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
    "The experiment `learners`: both readings of the score at a million steps and at the end."
    runs = json.loads((BENCHMARKS / "learners.json").read_text())
    rows = []
    for arm, text in LEARNERS.items():
        if not (seeds := runs.get(arm)):
            continue
        row = [text, str(len(seeds))]
        for k in range(2):
            row += [plus_minus(mean(_by_seed(seeds, which, k).values()))
                    for which in ("score_training", "score_policy")]
        ends = [_by_seed(of, "score_policy", 1) for of in (seeds, runs["ppo"])]
        row.append("" if arm == "ppo" else plus_minus(paired(*ends), signed=True))
        rows.append(row + [plus_minus(mean((run[tool] for run in seeds.values()), PERCENT))
                           for tool in ("make_iron_pickaxe", "make_iron_sword")])
    return table(["learner", "seeds", "1M steps: over training, %", "of the policy, %", "1.97M: over training, %",
                  "of the policy, %", "more than `ppo`", "make_iron_pickaxe, %", "make_iron_sword, %"], rows, "l")


def learners_worlds() -> str:
    "The experiment `learners`: what designed worlds add to each learner, paired by seed."
    runs = json.loads((BENCHMARKS / "learners.json").read_text())
    return table(["learner", "score of the policy", "over training", "of the policy at 1M steps"], [
        [LEARNERS[arm], *(plus_minus(paired(_by_seed(runs[f"{arm}-worlds"], which, k), _by_seed(runs[arm], which, k)),
                                     signed=True)
                          for which, k in (("score_policy", 1), ("score_training", 1), ("score_policy", 0)))]
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
        for which in ("score_training", "score_policy"):
            values, base = ({seed: run[which] for seed, run in of.items()} for of in (runs, found["ppo"]))
            row += [plus_minus(mean(values.values())),
                    "" if learner == "ppo" else plus_minus(paired(values, base), signed=True)]
        row += [plus_minus(mean((run["success"][tool] for run in runs.values()), PERCENT))
                for tool in ("make_iron_pickaxe", "make_iron_sword")]
        rows.append([*row, f"{sum(run['steps_per_cpu_s'] for run in runs.values()) / len(runs):,.0f}"])
    return table(["learner", "seeds", "over all training episodes, %", "more than PPO", "of the final policy, %",
                  "more than PPO", "make_iron_pickaxe, %", "make_iron_sword, %", "steps per second of CPU time"],
                 rows, "l")


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
        for which in ("score_training", "score_policy"):
            values, base = ({seed: run[which] for seed, run in of.items()} for of in (runs, found["ppo", "{}"]))
            row += [plus_minus(mean(values.values())),
                    "" if key == ("ppo", "{}") else plus_minus(paired(values, base), signed=True)]
        rows.append([*row, f"{sum(run['steps_per_s'] for run in runs.values()) / len(runs):,.0f}"])
    return table(["learner", "seeds", "over all training episodes, %", "more than PPO", "of the final policy, %",
                  "more than PPO", "steps per second"], rows, "l")


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


def language_model() -> str:
    "Eight runs with a language model beside the arms of the same version, seed by seed."
    live = read_jsonl(ROOT / "nbs" / "lab" / "experiments" / "recordings" / "live" / "results.jsonl")
    scores = defaultdict(dict)
    for record in [*live, *read_jsonl(BENCHMARKS / "paper_comparison.jsonl")]:
        if "protocol" not in record:
            scores[record["who"]][record["seed"]] = record["scores"][1:]
    names = {"live": "a language model with feedback", "plain": "plain PPO", "fixed": "fixed worlds",
             "offline": "the designer `rules`"}
    rows = [[text, *(plus_minus(mean(row[k] for row in scores[who].values())) for k in range(5))]
            for who, text in names.items()]
    for who in ("plain", "fixed", "offline"):
        rows.append([f"the model, more than {names[who]}", *(plus_minus(paired(
            {seed: row[k] for seed, row in scores["live"].items()},
            {seed: row[k] for seed, row in scores[who].items()}), signed=True) for k in range(5))])
    return table(["score of the policy after", "cycle 1", "2", "3", "4", "the end"], rows, "l")


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


def records() -> str:
    "The experiments that are recorded, and what their first measure shows beside the baseline."
    rows = []
    for folder in map(opened, names()):
        one, measure = folder.experiment, folder.experiment.measures[0]
        values = folder.measured(measure)
        gains = {arm: paired(mine, values[one.baseline]) for arm, mine in values.items() if arm != one.baseline}
        shown = [f"`{arm}` {gain:+.1f}" for arm, gain in gains.items()
                 if gain.low is not None and not gain.low <= 0 <= gain.high]
        done = sum(map(len, folder.summaries().values()))
        rows.append([f"[`{one.name}`]({one.name}.html)", one.question, f"{done} of {len(one.runs())}",
                     f"{measure}, more than `{one.baseline}`: {', '.join(shown) or 'no difference could be shown'}"])
    return table(["experiment", "question", "runs", "what was shown"], rows, "llrl")


def placeholders() -> str:
    "The placeholders of prompt templates, as the kit knows them."
    return table(["placeholder", "what is filled in"], [[f"`{{{{{name}}}}}`", text] for name, text in
                                                        PLACEHOLDERS.items()], "ll")


TABLES = {"make run": make_run, "make run, six rows": make_run_short, "paper, short": paper_short,
          **{name: partial(experiment, name) for name in ARMS},
          "chain": partial(chain, "chain.json"), "chain, 4m": partial(chain, "chain_4m.json"),
          "backward tuning": backward_tuning, "presets": presets, "learning": learning, "tuning": tuning,
          "learners": learners, "learners, measured": learners_measured, "learners, worlds": learners_worlds,
          "learners, pixels": learners_pixels, "gpu, speed": gpu_speed, "gpu, runs": gpu_runs,
          "heist": heist, "language model": language_model, "placeholders": placeholders, "experiments": experiments,
          "records": records}


def _more(name: str, arm: str, base: str, measure: str = "score at the end") -> Estimate:
    "How much more one arm of an experiment has than another."
    values = opened(name).measured(measure)
    return paired(values[arm], values[base])


def _end(name: str, arm: str) -> float:
    "The mean score at the end of an arm."
    return mean(opened(name).measured("score at the end")[arm].values()).value


@cache
def quotes() -> list[tuple[str, str, list[Any]]]:
    "The numbers in sentences: page, the words around them, and what they are."
    area = "area under the curve"
    runs = json.loads((BENCHMARKS / "learners.json").read_text())
    pixels, (_, shaped, ad) = _pixels(), PIXELS

    def learner(arm: str, base: str, which: str = "score_policy", k: int = 1) -> Estimate:
        return paired(_by_seed(runs[arm], which, k), _by_seed(runs[base], which, k))

    def pixel(which: str) -> Estimate:
        return paired(*({seed: run[which] for seed, run in pixels[key].items()} for key in (ad, shaped)))

    pickaxe = opened("transfer_4m").measured("success at make_iron_pickaxe")
    return [
        ("README.md", "Its score ends {:.1f} above PPO, at four million steps {:.1f}, with",
         [_more("transfer", "steps", "plain"), _more("transfer_4m", "steps", "plain")]),
        ("README.md", "its return does not: {:+.1f} and {:+.1f}.",
         [_more(name, "steps", "plain", RETURN) for name in ("transfer", "transfer_4m")]),
        ("README.md", "Achievement Distillation ends {:.1f} higher in score,", [learner("ad-worlds", "ad")]),
        ("README.md", "without any {:.1f} above PPO", [learner("rare", "ppo")]),
        ("results_worlds", "`rules` differs from `fixed` by {:+.1f} in area and by {:+.1f} in score at the end",
         [_more("paper", "rules", "fixed", area), _more("paper", "rules", "fixed")]),
        ("results_worlds", "90% costs {:.1f} of the area under the curve",
         [_more("mixture", "share-50", "share-90", area)]),
        ("results_worlds", "plain PPO gains {:.1f} over the end of `transfer`, `steps` gains {:.1f}.",
         [_end("transfer_4m", arm) - _end("transfer", arm) for arm in ("plain", "steps")]),
        ("results_worlds", "(the interval of the pickaxe begins at {:.1f}%)", [mean(pickaxe["steps"].values()).low]),
        ("results_learners",
         "it is {:.1f} ahead after a million steps ({:.1f} over the training until then), and at the end it is not: "
         "{:+.1f}.", [learner("ad", "ppo-long", *which) for which in (
             ("score_policy", 0), ("score_training", 0), ("score_policy", 1))]),
        ("results_learners", "{:.1f} higher than PPO with them, paired", [learner("rare", "ppo-worlds")]),
        ("results_learners", "it is ahead over the training ({:+.1f}), and at the end it may be ({:+.1f})",
         [learner("memory", "ppo", "score_training"), learner("memory", "ppo")]),
        ("results_learners", "it is ahead by {:.1f} over the training, and by {:.1f} at the end",
         [pixel("score_training"), pixel("score_policy")])]


def quoted(page: Path, text: str) -> str:
    "A page with the numbers in its sentences made anew."
    for name, words, numbers in quotes():
        if page == ROOT / name or page.parent.name == "guides" and page.stem == name:
            pattern = re.sub(r"\\{:.*?\\}", lambda _: r"[-+]?\d+\.\d( \[[^]]*\])?", re.escape(words))
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


def figures() -> dict[Path, str]:
    "Each drawing in its file."
    paper, mixture = (opened(name) for name in ("paper", "mixture"))
    area, end = setting_curves(mixture)
    return {ROOT / "docs" / f"{name}.svg": f"{alone(drawing)}\n" for name, drawing in (
        ("designed-worlds", gain_curves(paper)), ("mixture-area", area), ("mixture-end", end),
        ("next-goal", next_goal()))}


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
