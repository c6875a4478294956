from .base.errors import ArrieroError as ArrieroError
from .base.words import LimitKind as LimitKind
from .jobs.check import CheckOptions as CheckOptions
from .jobs.check import check as check
from .jobs.check import check_file as check_file
from .jobs.diagnose import DiagnoseOptions as DiagnoseOptions
from .jobs.diagnose import diagnose as diagnose
from .jobs.explain import explain as explain
from .jobs.explain import explain_stream as explain_stream
from .jobs.plan import PlanOptions as PlanOptions
from .jobs.plan import plan as plan
from .jobs.verify import VerifyOptions as VerifyOptions
from .jobs.verify import verify as verify
from .jobs.verify import verify_url as verify_url
from .memory.pools import parse_pools as parse_pools
from .process.model import Limit as Limit
from .record.check import Check as Check
from .record.check import Checks as Checks
from .record.diagnosis import Diagnosis as Diagnosis
from .record.explanation import Explanation as Explanation
from .record.files import encode as encode
from .record.plan import Plan as Plan
from .record.verification import Verification as Verification
from .store.store import Store as Store
from .trial.spec import Patience as Patience

__version__: str
