"""speculative-decoding 0.2.0: a Decoder with an early exit, for `speculative_decoding_with_same_model`, cannot be made.

`Decoder.__init__` names RMSNorm, which its module does not import (and rotary_emb, where the exit has blocks of its own).
Exit code 1 if the fault is there.
"""

from speculative_decoding import Decoder

raised = []
for blocks in (0, 1):
    try:
        Decoder(num_tokens=8, dim=8, depth=2, early_exit_layer=1, early_exit_extra_transformer_blocks=blocks)
    except Exception as error:
        raised.append(error)
        print(f"{blocks} further blocks: {type(error).__name__}: {error}")
raise SystemExit(int(len(raised) == 2))
