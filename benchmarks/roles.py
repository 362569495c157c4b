"""Prompts for the experiments `roles_…`, in which a language model is a designer, a teacher or a player, and what
becomes of the replies.

    python benchmarks/roles.py prompts FOLDER    # FOLDER/TASK/teacher-1.md …, ladders.md, and questions.json
    python benchmarks/roles.py tables FOLDER     # of FOLDER/TASK/teacher-1-reply.md …: FOLDER/TASK/table.json
    python benchmarks/roles.py sizes FOLDER      # of FOLDER/TASK-SEED, where `manual` played: TASK/player-sizes.json

TASK is one of MiniGrid's, or crafter, which has no ladders.md here. A prompt to a teacher has at most twenty
situations. They are found by playing, half of the games by options, some at random, each kept for a while, and half by
actions at random; where a game has a player by rules, this plays half of the games, a tenth of its actions at random,
and the others share the rest. On a situation that did not come up a teacher has no opinion. A reply with complaints
makes no table: the complaints are printed, and go back to the model. `ladders.md` asks a designer for ladders before
the training. `sizes` counts the calls of a player and the characters of its prompts and replies, which were carried by
hand, so that tokens can be estimated; it writes into the recordings. The calls of a player are made by runs with
`manual` (docs/guides/player.md).
"""
import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from envgen_nb.cycle.settings import make_settings
from envgen_nb.designer.prompt import DesignContext, first_prompt, load_templates
from envgen_nb.designer.teacher import Question, Table, questions, read_answers, teacher_prompt
from envgen_nb.game.files import write_json
from envgen_nb.game.simulator import Simulator, get_simulator
from envgen_nb.simulators.minigrid_tasks import TASKS

RECORDINGS = Path(__file__).parent.parent / "nbs" / "lab" / "experiments" / "recordings" / "roles"
AT_ONCE, ENVS, STEPS, KEPT_FOR, MOST = 20, 128, 73_728, 8, 300


def situations(game: Simulator) -> list[Question]:
    "Return what a teacher would be asked in a game, the most frequent first, and at most `MOST`."
    text, player, random, seen = game.text("symbols"), game.player("symbols"), np.random.default_rng(0), Counter()
    envs, count = ENVS if player is None else ENVS // 2, len(text.options)
    group = np.arange(envs) % (2 if player is None else 4)          # the last acts at random, 0 and 1 of 4 by rules
    first = np.arange(count, 0, -1)                 # half of the choices are the first that is possible: it gets on
    venv = game.make_vec(num_envs=envs, seed=0, obs="symbols")
    (obs, _), memory, chosen = venv.reset(), text.start(envs), np.zeros(envs, int)
    rules = None if player is None else player.start(envs)
    for step in range(STEPS // envs):
        seen.update(questions(text, obs))
        able, liking = text.possible(obs), random.random((envs, count))
        if player is None:
            liking += (random.random((envs, 1)) < 0.5) * first
        again = able[np.arange(envs), chosen] & (step % KEPT_FOR > 0)
        chosen = np.where(again, chosen, (liking * able).argmax(1))
        actions, memory = text.act(obs, memory, np.eye(count, dtype=bool)[chosen])
        actions, free = actions.max(1), random.integers(len(game.actions), size=envs)
        actions = np.where((actions < 0) | (group == group.max()), free, actions)
        if player is not None:
            by_rule, rules = player.act(obs, rules)
            actions = np.where(group < 2, np.where(random.random(envs) < 0.1, free, by_rule), actions)
        memory = text.note(memory, actions)
        obs, _, terminated, truncated, _ = venv.step(actions)
        ended = terminated | truncated
        memory[ended] = text.start(1)
        if player is not None:
            rules[ended] = player.start(1)
    found = [one for one, _ in seen.most_common() if len(one.options) > 1]
    share = sum(seen[one] for one in found[:MOST]) / seen.total()
    print(f"{game.name}: {len(found)} situations in {seen.total():,} steps; the first {MOST} are {share:.0%} of them")
    return found[:MOST]


def write_prompts(game: Simulator, folder: Path) -> None:
    "Write the prompts to a teacher, and the questions in them."
    folder.mkdir(parents=True)
    asked = situations(game)
    Table(dict.fromkeys(asked)).save(folder / "questions.json")
    for start in range(0, len(asked), AT_ONCE):
        prompt = teacher_prompt(game, asked[start:start + AT_ONCE])
        (folder / f"teacher-{start // AT_ONCE + 1}.md").write_text(prompt)


def write_ladders_prompt(game: Simulator, folder: Path) -> None:
    "Write the prompt to a designer."
    templates = load_templates(make_settings(simulator="minigrid", designer="none").templates)
    (folder / "ladders.md").write_text(first_prompt(templates, game, context=DesignContext(ladders=())))


def write_table(folder: Path) -> list[str]:     # complaints
    "Write the table of the replies, if nothing is wrong in them."
    asked, answers, complaints = list(Table.load(folder / "questions.json").answers), {}, []
    for start in range(0, len(asked), AT_ONCE):
        reply = folder / f"teacher-{start // AT_ONCE + 1}-reply.md"
        found, wrong = read_answers(reply.read_text(), asked[start:start + AT_ONCE])
        answers |= found
        complaints += [f"{reply}: {one}" for one in wrong]
    if not complaints:
        Table(answers).save(folder / "table.json")
    return complaints


def write_sizes(task: str, folder: Path) -> None:
    "Write how many calls each episode of a player took, and how long its prompts and replies were."
    found = {}
    for episode in sorted(folder.glob(f"{task}-*")):
        texts = {what: [path.read_text() for path in episode.glob(f"{what}-*.md")] for what in ("prompt", "reply")}
        found[episode.name.removeprefix(f"{task}-")] = {
            "calls": len(texts["prompt"]), "characters": {what: sum(map(len, some)) for what, some in texts.items()}}
    if found:                                                   # else what is recorded stays
        write_json(RECORDINGS / task / "player-sizes.json", found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prompts", "tables", "sizes"))
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    complaints = []
    for game in (*(task() for task in TASKS), get_simulator("crafter")):
        name = game.name.removeprefix("minigrid-")
        folder = args.folder / name
        if args.what == "sizes":
            write_sizes(name, args.folder)
        elif args.what == "prompts":
            write_prompts(game, folder)
            if type(game) in TASKS:                         # Crafter's ladders are those of the experiment `ladders`
                write_ladders_prompt(game, folder)
        elif folder.exists():
            complaints += write_table(folder)
    sys.exit("\n".join(complaints) or 0)


if __name__ == "__main__":
    main()
