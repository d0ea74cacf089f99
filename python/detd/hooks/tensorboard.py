"""The methods of TensorBoard's SummaryWriter."""  # SPDX-License-Identifier: Apache-2.0
import detd


class SummaryWriter:
    """Its scalars of rank 0 go to `eval`; other kinds of summaries are left out. They are numbers of one rank: losses
    of all ranks need Run.loss()."""

    def __init__(self, *args, **options):
        """Takes the arguments of TensorBoard's writer and ignores them."""
        self._run, self._step = detd.init(), 0

    def add_scalar(self, tag, scalar_value, global_step=None, *args, **options):
        """Without global_step the scalar belongs to the newest step."""
        self._step = self._step if global_step is None else int(global_step)
        self._run.metrics(self._step, {tag: scalar_value})

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, *args, **options):
        for tag, value in tag_scalar_dict.items():
            self.add_scalar("%s/%s" % (main_tag, tag), value, global_step)

    def __getattr__(self, name):
        if name.startswith("add_") or name in ("flush", "close"):
            return lambda *args, **options: None
        raise AttributeError(name)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        pass
