"""Every frozen record that travels between the stages. Standard library only.

Records are values: frozen, keyword-only, comparable. Whatever is stored or sent is built from plain data
(``str``, ``int``, ``float``, ``bool``, ``None``, lists and dicts of them); :func:`to_plain` and
:func:`from_plain` convert both ways; the second checks every value.

Units stand in the field names: ``_ns`` nanoseconds, ``_s`` seconds, ``_bytes`` bytes. What a module's ``__all__``
names is a name of this package.
"""

from kerneleval.records.cells import *
from kerneleval.records.errors import *
from kerneleval.records.generation import *
from kerneleval.records.model_configs import *
from kerneleval.records.nested import *
from kerneleval.records.outcomes import *
from kerneleval.records.plain import *
from kerneleval.records.targets import *
from kerneleval.records.tasks import *
from kerneleval.records.verdicts import *
from kerneleval.records.vocabulary import *
