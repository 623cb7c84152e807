"""The one exception that means "the user asked for something that can't be done"."""


class InputError(ValueError):
    """Bad input, told in one line: which key, which value, and what would be valid.

    Everything that checks a user's input raises this type, so that a command line can
    print the line without a traceback and everything else stays a bug.
    """

    def __init__(self, key: str, value: object, remedy: str) -> None:
        self.key, self.value, self.remedy = key, value, remedy
        super().__init__(key, value, remedy)

    def __str__(self) -> str:
        return f"{self.key} = {self.value!r}: {self.remedy}"
