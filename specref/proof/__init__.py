"""Proof by enumeration: the exact law of every rule on random rational models, compared with the target's by `==`."""

from specref.proof.counterexample import Counterexample, smallest_counterexample
from specref.proof.first_token import FirstToken, chosen_chain, chosen_siblings, first_token
from specref.proof.instances import EXAMPLE, Instance, RowsModel, chain_instances, random_models, tree_instances
from specref.proof.prove import ProofResult, prove_all
from specref.proof.rounds import (
    Departure,
    departure,
    every_context,
    law_in_two_stages,
    law_of_generation,
    law_of_repeated_rounds,
    law_of_round,
    lossless_round,
    variation_of_round,
)
from specref.proof.subjects import SUBJECTS, PlainGreedy, Subject, subject

__all__ = [
    "EXAMPLE",
    "SUBJECTS",
    "Counterexample",
    "Departure",
    "FirstToken",
    "Instance",
    "PlainGreedy",
    "ProofResult",
    "RowsModel",
    "Subject",
    "chain_instances",
    "chosen_chain",
    "chosen_siblings",
    "departure",
    "every_context",
    "first_token",
    "law_in_two_stages",
    "law_of_generation",
    "law_of_repeated_rounds",
    "law_of_round",
    "lossless_round",
    "prove_all",
    "random_models",
    "smallest_counterexample",
    "subject",
    "tree_instances",
    "variation_of_round",
]
