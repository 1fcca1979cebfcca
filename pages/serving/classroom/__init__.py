"""A class that answers together: its questions and answers, and what students' phones ask for.

Students have no account and no name. What is kept, for less than a day: each class's code, when it began and
was last used, its questions, and the answers of each browser under a random name that only it knows.
"""

from pages.serving.classroom.phones import PATH, routes
from pages.serving.classroom.place import begin, check, current, regain, tidy
from pages.serving.classroom.question import Act, Ballot, ClassError, Question, Round, Tally, letter
from pages.serving.classroom.step import ClassStep, from_file, to_file, view_of
from pages.serving.classroom.store import Board, ClassStore, code_of, viewing
from pages.serving.classroom.stored import TensorPart
from pages.serving.classroom.words import PROMPTS
