from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, DynamicCache, LlamaConfig, LlamaForCausalLM

from conformance.checks.law import law_findings
from conformance.findings import Verdict
from conformance.statistics import Ledger, ModePlan, Plan, TokenBlock
from specref import pretrained
from specref.chance import SampledChance, exact_law, exact_law_of_rounds
from specref.draft import Draft
from specref.drafters.lookahead import (
    Pool,
    Shape,
    State,
    Step,
    begin,
    completed,
    first_window,
    generate,
    next_window,
    one_round,
)
from specref.generate import NoDrafter
from specref.generate import generate as generate_in_rounds
from specref.laws import total, total_variation, without
from specref.models import TableModel, TransformersModel, sequence_law
from specref.processors import Processed, Temperature
from specref.proof.subjects import PlainGreedy
from specref.rules import chain, rewired
from specref.rules.tree import first_certain, greedy, sequential_one_hot, walk
from specref.stopping import Stops
from specref.tree import TokenTree
from specref.tree_attention import TreeTarget, tree_pass


def plain_greedy(target, prompt, stops):
    return generate_in_rounds(target, NoDrafter(), chain.greedy, prompt, k=1, stops=stops, chance=SampledChance(0)).tokens


# ---- window and pool


@pytest.mark.parametrize("shape", [Shape(3, 4, 2), Shape(1, 2, 1), Shape(4, 2, 1), Shape(1, 5, 1)])
def test_the_window_fills_and_then_every_column_is_the_targets_own_guess(shape):
    """Levels grow by one a round, columns shrink to W; each entry was the most probable token after those above it then."""
    target, prompt = TableModel(5, random.random()), (1, 4, 2)
    state = begin(prompt, shape, SampledChance(random.randrange(10**9)))
    assert set(state.window[0]) <= set(prompt)
    for done in range(1, 12):
        before = state
        context = prompt + before.tokens
        state, _ = one_round(before, prompt, target, greedy, shape, Stops(99), SampledChance(0))
        levels = min(1 + done, shape.levels)
        assert [len(level) for level in state.window] == [shape.W + shape.levels - levels] * levels
        assert state.window[0][0] == state.tokens[-1]
        warming_up = len(before.window) < shape.levels
        for i, token in enumerate(state.window[-1]):
            column = i + 1 if warming_up else i
            above = before.window[0][1 : column + 1] + tuple(level[column] for level in before.window[1:])
            if shape.levels > 1 or i > 0:  # with one level, its first token is replaced by the committed one
                assert token == int(target.next_law(context + above).argmax())
        assert bool(state.pool.grams) == (done >= shape.levels)
        assert all(len(gram) == shape.N for gram in state.pool.grams)


def test_n_grams_are_columns():
    shape = Shape(2, 4, 1)
    assert completed(((1, 2), (3, 4), (5, 6)), (7, 8), shape) == [(1, 3, 5, 7), (2, 4, 6, 8)]
    assert completed(((1, 2, 9), (3, 4, 9)), (7, 8, 9), shape) == []  # still filling


def test_the_pool_keeps_the_g_most_recent_of_each_key():
    dice = random.Random()
    for _ in range(100):
        g = dice.randint(1, 4)
        pool, seen = Pool(g), []
        for _ in range(30):
            grams = [tuple(dice.choices(range(3), k=3)) for _ in range(dice.randint(0, 3))]
            pool, seen = pool.adding(grams), seen + grams
            for key in range(4):
                recent = list(dict.fromkeys(gram[1:] for gram in reversed(seen) if gram[0] == key))
                assert pool.after(key) == tuple(recent[:g])


def test_guesses_are_at_most_g_and_fit_the_room():
    target, shape = TableModel(2, 3, memory=1), Shape(W=5, N=4, G=2)
    for stops in (Stops(5), Stops(6), Stops(30)):
        out = generate(target, greedy, (0, 1), shape=shape, stops=stops, chance=SampledChance(1))
        for done in out.rounds:
            assert len(done.drafted) <= shape.G * (shape.N - 1)
            assert done.accepted < stops.room(out.tokens[: done.start])
            assert done.start + done.accepted + 1 == done.start + len(done.emitted)
        assert any(done.drafted for done in out.rounds)
        assert len(out.tokens) == stops.max_tokens


# ---- mask and pass


def published_mask(levels, columns, guesses, length):
    """The combined mask as the paper draws it: a triangle on level 0, diagonals below it, a triangle per guess."""
    window = levels * columns
    mask = np.zeros((window + guesses * length,) * 2, dtype=bool)
    mask[:, 0] = True
    for level in range(levels):
        rows = slice(level * columns, (level + 1) * columns)
        mask[rows, :columns] = np.tri(columns)
        for above in range(1, level + 1):
            mask[rows, above * columns : (above + 1) * columns] = np.eye(columns)
    for guess in range(guesses):
        part = slice(window + guess * length, window + (guess + 1) * length)
        mask[part, part] = np.tri(length)
    return mask


def random_step(dice, vocabulary, root):
    levels, columns = dice.randint(1, 4), dice.randint(1, 6)
    guesses, length = dice.randint(0, 4), dice.randint(1, 4)
    draw = lambda k: tuple(dice.choices(range(vocabulary), k=k))  # noqa: E731
    window = ((root, *draw(columns - 1)), *(draw(columns) for _ in range(levels - 1)))
    return Step(window, [draw(length) for _ in range(guesses)]), (levels, columns, guesses, length)


def test_mask_positions_and_where_the_guesses_stand():
    dice = random.Random()
    for _ in range(200):
        step, (levels, columns, guesses, length) = random_step(dice, 3, root=1)
        assert (step.tree.ancestor_mask() == published_mask(levels, columns, guesses, length)).all()
        of_window = [level + column for level in range(levels) for column in range(columns)]
        assert step.tree.position_ids(root=7) == tuple(7 + place for place in of_window + [*range(1, length + 1)] * guesses)
        assert len(step.nodes) == len(step.guessed)
        for node, where in enumerate(step.nodes):
            assert step.guessed.spells(node) == step.tree.spells(where)
            assert where == 0 or where >= levels * columns
        siblings = list(zip(step.guessed.parents, step.guessed.tokens))
        assert len(set(siblings)) == len(siblings)


def all_in_float64(model):
    """transformers' own norm computes in float32 whatever the weights are; a last bit that flips there is more than 1e-9."""
    for parent in list(model.modules()):
        for name, module in parent.named_children():
            if type(module).__name__ == "LlamaRMSNorm":
                norm = torch.nn.RMSNorm(module.weight.shape[0], eps=module.variance_epsilon)
                norm.weight = module.weight
                setattr(parent, name, norm)
    return model.double().eval()


def tiny(vocabulary=20):
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2}
    return all_in_float64(LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, initializer_range=0.5, **sizes)))


def trained_target():
    return TreeTarget.load(pretrained.path("target"), dtype=torch.float64)


def largest_difference(model, context, tree, of=None):
    """Between `tree` in one pass and each path of the tree `of` (itself) read alone, without mask, positions or cache."""
    cache = DynamicCache()
    if context[:-1]:
        tree_pass(model, TokenTree.chain(context[0], context[1:-1]), cache)
    together, _ = tree_pass(model, tree, cache)
    with torch.inference_mode():
        alone = [
            model(torch.tensor([[*context, *(of or tree).spells(node)]]), use_cache=False).logits[0, -1]
            for node in range(len(tree))
        ]
    return (together - torch.stack(alone)).abs().max()


def check_steps(model, vocabulary, count):
    dice = random.Random()
    for _ in range(count):
        context = tuple(dice.choices(range(vocabulary), k=dice.randint(1, 12)))
        step, _ = random_step(dice, vocabulary, context[-1])
        assert largest_difference(model, context, step.tree) < 1e-9


def test_one_pass_equals_separate_runs():
    check_steps(tiny(), 20, 20)


@pytest.mark.long
def test_one_pass_equals_separate_runs_for_200_steps_of_the_trained_target():
    check_steps(all_in_float64(trained_target().model), 114, 200)


class CausalTree(TokenTree):
    """A planted fault: every node sees all nodes before it."""

    def ancestor_mask(self):
        return np.tri(len(self), dtype=bool)


class FlatTree(TokenTree):
    """Another: positions are places in the flattened order."""

    def position_ids(self, root=0):
        return tuple(range(root, root + len(self)))


@pytest.mark.parametrize("fault", [CausalTree, FlatTree])
def test_a_wrong_mask_or_position_shows(fault):
    step = Step(window=((7, 1, 2), (3, 4, 5)), guesses=[(3, 8), (3, 9)])
    faulty = fault(step.tree.tokens, step.tree.parents)
    assert largest_difference(tiny(), (5, 7), faulty, of=step.tree) > 1e-4


def test_a_round_is_one_pass_of_a_transformers_model():
    model, passes = tiny(), []
    model.register_forward_hook(lambda *_: passes.append(1))
    settings = {"shape": Shape(3, 3, 2), "stops": Stops(12), "chance": SampledChance(0)}
    out = generate(TreeTarget(model), greedy, (1, 2, 3), **settings)
    assert len(passes) == len(out.rounds)


# ---- lossless


def random_start(dice, V, shape, root):
    """Any window, and any pool with guesses for every key, some sharing a prefix."""
    draw = lambda k: tuple(dice.choices(range(V), k=k))  # noqa: E731
    levels = dice.randint(1, shape.levels)
    columns = shape.W + shape.levels - levels
    window = ((root, *draw(columns - 1)), *(draw(columns) for _ in range(levels - 1)))
    grams = [(key, *draw(shape.N - 1)) for key in range(V) for _ in range(shape.G)]
    return State((), window, Pool(shape.G).adding(grams))


def law_of_output(start, prompt, target, rule, shape, stops):
    def step(state, chance):
        return one_round(state, prompt, target, rule, shape, stops, chance)[0]

    law = {}
    for state, mass in exact_law_of_rounds(step, start, lambda state: stops.finished(state.tokens)).items():
        law[state.tokens] = law.get(state.tokens, Fraction(0)) + mass
    return law


KINDS = ["mixed", "plain", "zeros", "ties", "one_hot"]


def check_lossless(models, kinds=KINDS):
    """Exactly, over whole generations of several rounds, for an empty pool and random pools and windows."""
    dice, prompt, accepted = random.Random(), (0, 1), 0
    for i in range(models):
        V, shape = dice.choice([2, 3]), Shape(dice.randint(1, 2), dice.randint(2, 3), dice.randint(1, 3))
        target = TableModel(V, dice.random(), kinds[i % len(kinds)], memory=dice.choice([1, None]))
        stops = Stops(4, eos=[V - 1] if dice.random() < 0.3 else [])
        expected = sequence_law(target, prompt, stops.max_tokens, stops.eos)
        likely = sequence_law(PlainGreedy(target), prompt, stops.max_tokens, stops.eos)
        for start in (begin((1,), shape, SampledChance(0)), *(random_start(dice, V, shape, prompt[-1]) for _ in range(2))):
            assert law_of_output(start, prompt, target, sequential_one_hot, shape, stops) == expected, (i, target.seed, start)
            assert law_of_output(start, prompt, target, greedy, shape, stops) == likely, (i, target.seed, start)
            out = one_round(start, prompt, target, greedy, shape, stops, SampledChance(0))[1]
            accepted += out.accepted
    assert accepted > 0


def test_pool_and_window_change_nothing_but_the_speed():
    check_lossless(40)


@pytest.mark.long
def test_pool_and_window_change_nothing_but_the_speed_for_400_models():
    check_lossless(400)


def test_lossless_with_the_window_drawn_from_the_prompt():
    """Every first window, weighted with its probability: the law of the whole of `generate`."""
    target, prompt, shape, stops = TableModel(3, random.random()), (2, 0), Shape(2, 2, 2), Stops(3)
    law = exact_law(lambda chance: generate(target, sequential_one_hot, prompt, shape=shape, stops=stops, chance=chance).tokens)
    assert law == sequence_law(target, prompt, 3)
    assert len(exact_law(lambda chance: first_window(prompt, shape, chance))) == 2


keeps_rejected = rewired(first_certain, without=lambda law, token: law)


def guesses_one_by_one(p, draft, chance):
    """A planted fault: each guess is verified against the target's full law, whatever was rejected before it."""
    return walk(p, draft, chance, keeps_rejected)


def too_easily(children, r, draft, chance):
    for child in children:
        x = draft.tokens[child]
        if chance.accepts(2 * r[x], total(r), slot=("accept", child)):
            return child, r
        r = without(r, x)
    return None, r


def twice_as_likely(p, draft, chance):
    """Another: guesses are accepted with twice their probability."""
    return walk(p, draft, chance, too_easily)


@pytest.mark.parametrize("fault", [guesses_one_by_one, twice_as_likely])
def test_planted_faults_change_the_law(fault):
    target, shape, stops = TableModel(3, 5), Shape(1, 3, 2), Stops(3)
    start = State((), ((1, 0),), Pool(2).adding([(1, 0, 2), (1, 2, 2)]))
    law = law_of_output(start, (1,), target, fault, shape, stops)
    assert total_variation(law, sequence_law(target, (1,), 3)) > Fraction(1, 20)


def as_published(p, tree, guesses, chance):
    """Verification as the paper writes it: n-grams side by side, place by place, those that disagree filtered out."""
    node, accepted, left = 0, (), list(guesses)
    for place in range(len(guesses[0])):
        law = p[node]
        tried = dict.fromkeys(guess[place] for guess in left)
        for token in tried:
            child = next(n for n in tree.children(node) if tree.tokens[n] == token)
            if chance.accepts(law[token], total(law), slot=("accept", child)):
                node, accepted = child, (*accepted, token)
                left = [guess for guess in left if guess[place] == token]
                break
            law = without(law, token)
        else:
            return (*accepted, chance.picks(law, slot=("emit",)))
    return (*accepted, chance.picks(p[node], slot=("emit",)))  # the bonus, which the authors' code leaves out


def test_the_tree_of_guesses_decides_as_the_published_filtering_does():
    dice = random.Random()
    for seed in range(200):
        target, guesses = TableModel(3, dice.random()), list({tuple(dice.choices(range(3), k=3)) for _ in range(4)})
        step = Step(((1,),), guesses)
        p = [target.next_law((1, *step.guessed.spells(node))) for node in range(len(step.guessed))]
        verified = sequential_one_hot(p, Draft.chosen(step.guessed.tokens, step.guessed), SampledChance(seed))
        emitted = (*(step.guessed.tokens[node] for node in verified.path), verified.next_token)
        assert emitted == as_published(p, step.guessed, guesses, SampledChance(seed))


def test_right_guesses_save_passes_and_wrong_ones_cost_none():
    target, prompt, shape, stops = TableModel(6, random.random(), memory=1), (1,), Shape(2, 4, 3), Stops(24)
    tokens = plain_greedy(target, prompt, stops)
    text = prompt + tokens
    right = Pool(3).adding(text[i : i + 4] for i in range(len(text) - 3))
    wrong = Pool(3).adding((key, *((int(target.next_law((key,)).argmax()) + 1) % 6,) * 3) for key in range(6))
    rounds = {}
    for name, pool in {"right": right, "wrong": wrong}.items():
        state, rounds[name] = begin(prompt, shape, SampledChance(0)), 0
        while not stops.finished(state.tokens):
            state = State(state.tokens, state.window, pool)
            state, _ = one_round(state, prompt, target, greedy, shape, stops, SampledChance(0))
            rounds[name] += 1
        assert state.tokens == tokens
    assert rounds == {"right": 6, "wrong": 24}


def check_the_family(documents, length):
    target = trained_target()
    tokenizer = AutoTokenizer.from_pretrained(pretrained.path("target"))
    stops, shape = Stops(length, eos=[tokenizer.eos_token_id]), Shape(W=7, N=4, G=5)
    rounds = written = 0
    for i, text in enumerate(documents):
        prompt = (tokenizer.bos_token_id, *tokenizer(text[:24])["input_ids"])
        out = generate(target, greedy, prompt, shape=shape, stops=stops, chance=SampledChance(i))
        assert out.tokens == plain_greedy(TransformersModel(target.model), prompt, stops)
        rounds += len(out.rounds)
        written += len(out.tokens)
    assert rounds < written, "nothing was saved"


def test_equals_plain_greedy_on_the_family():
    check_the_family(random.sample(pretrained.held_out(), 3), length=20)


@pytest.mark.long
def test_equals_plain_greedy_on_the_family_for_50_prompts():
    check_the_family(pretrained.held_out()[:50], length=48)


def test_sampling_a_processed_model_and_calling_twice():
    """Any language model will do, read path by path; and nothing is left over from the first call."""
    target = Processed(TableModel(4, 1, exact=False), [Temperature(0.5)], prompt_length=1)
    once, again = (
        generate(target, sequential_one_hot, (1,), shape=Shape(2, 3, 2), stops=Stops(20), chance=SampledChance(3))
        for _ in range(2)
    )
    assert once == again


# ---- the judge


def judged(rule, target, prompts, length, shape, seed):
    """LAW-1 and LAW-2 of `rule` over an output for each prompt. q: certain of the first guess, p where there is none."""
    planned = len(prompts) * length
    mode = ModePlan.standard("lookahead", planned // 2, segments=False, batch=False, k=shape.N - 1, exact_p=True)
    ledger = Ledger(Plan((mode,), alpha=1e-6), run=str(seed), seed=seed)
    sample = None
    for number, prompt in enumerate(prompts):
        chance = SampledChance(seed * len(prompts) + number)
        out = generate(target, rule, prompt, shape=shape, stops=Stops(length), chance=chance)
        p = np.array(target.next_laws(prompt, out.tokens[:-1]))
        q = p.copy()
        for done in out.rounds:
            if done.drafted:
                q[done.start] = np.eye(target.vocabulary)[done.drafted[0]]
        slot = np.concatenate([np.arange(len(done.emitted)) for done in out.rounds])
        request = np.full(length, number)
        ledger.observe("lookahead", TokenBlock(np.array(out.tokens), p, q, request=request, slot=slot))
        sample = sample or (p, q)
    return law_findings(ledger, "lookahead", ledger.look(), sample, tokens=planned, planned=planned)


def check_the_judge(target, prompts, length, shape, seed):
    """A correct engine is failed with probability 1e-6 at most; both faults must be found."""
    lawful = judged(sequential_one_hot, target, prompts, length, shape, seed)
    assert [finding.verdict for finding in lawful] == [Verdict.CONFORMS, Verdict.CONFORMS], (seed, lawful)
    for fault in (guesses_one_by_one, twice_as_likely):
        found = judged(fault, target, prompts, length, shape, seed)
        assert Verdict.VIOLATES in [finding.verdict for finding in found], (seed, fault, found)


def test_sampled_lookahead_passes_the_judges_law_requirement():
    """3,000 tokens show a leak of a tenth of the tokens to the guesses with probability 99.9%.

    On 8 such models the evidence against either fault was 1e19 or more, where 1e6 convicts.
    """
    seed = random.randrange(10**6)
    target = TableModel(6, seed, memory=2, exact=False)
    prompts = [(number % 6, number // 6 % 6) for number in range(60)]
    check_the_judge(target, prompts, 50, Shape(W=4, N=3, G=3), seed)


@pytest.mark.long
def test_sampled_lookahead_of_the_trained_target_passes_the_judges_law_requirement():
    target = trained_target()
    tokenizer = AutoTokenizer.from_pretrained(pretrained.path("target"))
    prompts = [(tokenizer.bos_token_id, *tokenizer(text[:16])["input_ids"]) for text in pretrained.held_out() * 2]
    check_the_judge(target, prompts, 40, Shape(W=4, N=3, G=3), random.randrange(10**6))


# ---- bad input


def test_bad_input():
    for settings, message in (((0, 3, 2), "W is 0"), ((2, 1, 2), "N is 1"), ((2, 3, 0), "G is 0")):
        with pytest.raises(ValueError, match=message):
            Shape(*settings)
    target, rest = TableModel(3, 0), {"shape": Shape(2, 3, 1), "stops": Stops(3), "chance": SampledChance(0)}
    with pytest.raises(ValueError, match="prompt is empty"):
        generate(target, greedy, (), **rest)
    with pytest.raises(ValueError, match="prompt token 3 is outside the target's vocabulary of 3"):
        generate(target, greedy, (3,), **rest)


def test_a_window_that_still_fills_drops_its_first_column():
    assert next_window(((1, 2, 3),), (4, 5, 6), root=9, shape=Shape(1, 4, 1)) == ((9, 3), (5, 6))
