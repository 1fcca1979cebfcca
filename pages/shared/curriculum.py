"""The curriculum: the lessons in their order, their steps, and how long each takes."""

from dataclasses import dataclass, field
from typing import NamedTuple

from quantcore.mistakes import CASES


class LessonStep(NamedTuple):
    """``headline``: a question that the step answers; ``minutes``: for someone reading alone."""

    headline: str
    minutes: int


@dataclass(frozen=True)
class Lesson:
    """A lesson.

    ``title``: in the navigation; ``idea``: its subject in one line; ``icon``: a Material symbol; ``steps``:
    by their name in the link.
    """

    title: str
    idea: str
    icon: str
    steps: dict[str, LessonStep] = field(hash=False)

    @property
    def minutes(self) -> int:
        """How long a reader needs."""
        return sum(step.minutes for step in self.steps.values())


# In order; the name is that of the page's script, or of its folder
LESSONS = {
    "why_quantize": Lesson("Why quantize", "What a model weighs, and what reading it costs", "scale", {
        "size": LessonStep("What does a model weigh?", 2),
        "bandwidth": LessonStep("How long does one token wait for memory?", 3),
        "product": LessonStep("Are integers faster here?", 2),
        "question": LessonStep("How large is a model in 4 bits?", 2),
    }),
    "scale": Lesson("Scale", "From the marks on a thermometer to codes", "straighten", {
        "marks": LessonStep("How far apart are the marks?", 2),
        "code": LessonStep("Which code does a reading get?", 2),
        "back": LessonStep("What does a code give back?", 2),
        "range": LessonStep("What happens outside the range?", 3),
        "bits": LessonStep("What does one more bit buy?", 2),
        "yours": LessonStep("How does it look on your tensor?", 2),
    }),
    "zero_point": Lesson("Zero point", "Which code stands for 0", "exposure_zero", {
        "symmetric": LessonStep("Which code stands for 0?", 2),
        "one-sided": LessonStep("How many codes does one-sided data use?", 2),
        "asymmetric": LessonStep("What does the zero point move?", 4),
        "zero": LessonStep("Why must 0 have a code of its own?", 3),
        "choose": LessonStep("Symmetric or asymmetric?", 2),
        "yours": LessonStep("How does it look on your tensor?", 2),
    }),
    "granularity": Lesson("Granularity", "Which elements share a scale", "grid_on", {
        "tensor": LessonStep("What does one large row do to the others?", 2),
        "rows": LessonStep("One scale per row: which axis, which shape?", 3),
        "columns": LessonStep("One scale per column: does it help here?", 2),
        "trap": LessonStep("What does a scale of shape (n,) divide?", 3),
        "groups": LessonStep("With groups, which values does an outlier affect?", 2),
        "blocks": LessonStep("What if neighbors along both axes share a scale?", 2),
        "cost": LessonStep("What does each scale cost?", 3),
        "yours": LessonStep("How does it look on your tensor?", 3),
    }),
    "error": Lesson("Error", "How large the error is, in one number", "show_chart", {
        "signed": LessonStep("What does the sign of an error tell you?", 2),
        "means": LessonStep("How do many errors become one number?", 3),
        "sqnr": LessonStep("How large is the error next to the signal?", 3),
        "clipping": LessonStep("Which range has the smallest error?", 4),
        "yours": LessonStep("How does it look on your tensor?", 3),
    }),
    "mistakes": Lesson("Mistakes", "Code that looks right", "bug_report", {
        name: LessonStep(f"Case {number} of {len(CASES)}: which cells are wrong?", 3)
        for number, name in enumerate(CASES, 1)
    }),
    "predict": Lesson("Predict", "Be the quantizer yourself", "quiz", {
        "codes": LessonStep("Which codes does this row get?", 5),
        "scale": LessonStep("Which scale does this tensor get?", 4),
        "zero_point": LessonStep("Which zero point does this tensor get?", 6),
    }),
    "ptq_or_qat": Lesson("PTQ or QAT", "Quantize after training, or during it", "model_training", {
        "network": LessonStep("How well does a small network read digits?", 2),
        "ptq": LessonStep("How much accuracy does PTQ cost?", 4),
        "rounding": LessonStep("What is the slope of rounding?", 3),
        "through": LessonStep("Which slope can training use instead?", 3),
        "qat": LessonStep("How much accuracy does QAT win back?", 5),
        "scales": LessonStep("Can the scale be learned too?", 3),
        "curve": LessonStep("How many bits are enough?", 6),
        "choose": LessonStep("Which one should you choose?", 4),
    }),
    "inside_a_layer": Lesson("Inside a layer", "From codes to the codes of the output", "memory", {
        "codes": LessonStep("What does the hardware multiply?", 3),
        "sums": LessonStep("Which four sums make up the product?", 4),
        "overflow": LessonStep("When is the accumulator too narrow?", 2),
        "back": LessonStep("How does a sum become a number again?", 2),
        "requantize": LessonStep("How does the output get its codes?", 4),
        "question": LessonStep("Which sums remain while the layer runs?", 2),
    }),
    "outliers": Lesson("Outliers", "Activations have them, SmoothQuant moves them", "stacked_line_chart", {
        "channels": LessonStep("What does one channel do to the others?", 3),
        "move": LessonStep("Where can an outlier go?", 4),
        "quality": LessonStep("How much of it should move?", 3),
        "question": LessonStep("What is left of x at the end?", 2),
    }),
    "gptq": Lesson("GPTQ", "Each column makes up for the errors so far", "view_column", {
        "inputs": LessonStep("Which inputs go together?", 3),
        "columns": LessonStep("Where does the error of a column go?", 6),
        "result": LessonStep("What is gained?", 2),
        "loss": LessonStep("Why is another loss printed?", 3),
        "inverse": LessonStep("May every column use the same inverse?", 3),
        "example": LessonStep("What is wrong with this example?", 3),
        "question": LessonStep("What if no inputs go together?", 2),
    }),
    "rotation": Lesson("Rotation", "An outlier is spread over all channels", "360", {
        "spread": LessonStep("Where does an outlier go when x is rotated?", 4),
        "undo": LessonStep("Why does the output stay the same?", 2),
        "layer": LessonStep("How many channels should rotate together?", 2),
        "question": LessonStep("How large is what is left of an outlier?", 2),
    }),
    "small_floats": Lesson("Small floats", "Floats of 4 bits, and scales of few bits", "blur_on", {
        "values": LessonStep("Which numbers have 4 bits?", 2),
        "scales": LessonStep("What can a scale of 8 bits be?", 4),
        "cost": LessonStep("What does a scale of few bits save?", 2),
        "question": LessonStep("Which scale does a block get?", 2),
    }),
}  # fmt: skip

_FOLDERS = {"ptq_or_qat"}  # lessons that are several modules


def script(name: str) -> str:
    """Return the script of a lesson's page, as Streamlit's links expect it."""
    return f"learn/{name}/page.py" if name in _FOLDERS else f"learn/{name}.py"


def numbered(name: str) -> str:
    """Write the title of a lesson after its number."""
    return f"{list(LESSONS).index(name) + 1} · {LESSONS[name].title}"


def step_words(name: str) -> str:
    """Write the name of a step in words."""
    return {"sqnr": "SQNR", "ptq": "PTQ", "qat": "QAT"}.get(name, name.replace("_", " "))


def step_key(name: str) -> str:
    """Return the key of the control for a lesson's step, also its link parameter."""
    return f"learn_{name}_step"
