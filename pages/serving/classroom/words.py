"""The words of students' phones."""

# the prompts of questions about a tensor, by what is asked and of how much
PROMPTS = {
    "code": "Which code does this value get?",
    "codes": "Which codes do these values get?",
    "scale": "Which scale does this tensor get?",
    "scales": "Which scales do these blocks get?",
    "zero_point": "Which zero point does this tensor get?",
    "zero_points": "Which zero points do these blocks get?",
    "dequantized": "What does this value become after quantizing and dequantizing?",
    "dequantized_values": "What do these values become after quantizing and dequantizing?",
    "error": "How large is the error of this value, x - x̂, with its sign?",
    "errors": "How large are the errors of these values, x - x̂, with their signs?",
    "bits": "How many bits does each element take, including scales and zero points?",
}
