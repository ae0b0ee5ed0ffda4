"""Errors in the words of the shell: the library speaks of arguments, the command of options."""

import errno
import re

OPTIONS = {
    "n_inducing": "-m",
    "batch_size": "--batch-size",
    "max_seconds": "--max-seconds",
    "random_state": "--seed",
}
# What an argument of the library is called here, in the order in which it is looked for.
TRANSLATED: tuple[tuple[str, str], ...] = (
    (r"missing='(\w+)'", r"--missing \1"),
    (r"delimiter=('[^']*')", r"--delimiter \1"),
    (r"\bdelimiter= ", r"--delimiter "),
    (r"`keep`", r"--keep"),
    (r"`restart\(\)\.partial_fit\(X, y\)`", r"`srgp update --afresh`"),
    (r"merge copies of one fitted regressor", r"merge copies of one model file"),
    (r"these regressors", r"these models"),
    (r", or one of srgp, got", r", got"),
    (r"a name or one such as srgp\.SRGP\(\)", r"a name"),
    # Not in quotes or paths: those are the user's own names.
    *((rf"(?<![\w'\"/.-]){name}(?![\w'\"/-]|\.\w)", option) for name, option in OPTIONS.items()),
)
NAMED = r"""features=\[((?:'[^']*'|"[^"]*"|, )*)\]"""  # names may hold brackets themselves
SYSTEM = {
    errno.ENOENT: "does not exist: check the path.",
    errno.EISDIR: "is a folder: name a file.",
    errno.ENOTDIR: "lies within a file, not in a folder: check the path.",
    errno.EACCES: "cannot be opened (permission denied): change its permissions, or name another.",
    errno.EPERM: "cannot be opened (not permitted): change its permissions, or name another.",
    errno.EROFS: "cannot be written (the disk can only be read): name another place.",
    errno.ENOSPC: "cannot be written (No space left): make room, or name another place.",
    errno.EFBIG: "cannot be written (File too large): name a place that takes it.",
    errno.EDQUOT: "cannot be written (Disk quota exceeded): make room, or name another place.",
}


def said(error: BaseException) -> str:
    """An error in one line, as a user of the command can act on it."""
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        told = SYSTEM.get(error.errno, f"cannot be used: {error.strerror}.")
        return f"{error.filename} {told}"
    text = re.sub(r"\s*\n\s*", " ", str(error).strip())
    text = re.sub(NAMED, lambda m: "--features " + _plain(m[1]), text)
    for pattern, words in TRANSLATED:
        text = re.sub(pattern, words, text)
    return text


def _plain(names: str) -> str:
    """Names as the shell takes them: 'a', 'b c' is "a,b c" in quotes."""
    joined = ",".join(name.strip().strip("'\"") for name in names.split(","))
    return joined if re.fullmatch(r"[\w,.-]+", joined) else f"'{joined}'"
