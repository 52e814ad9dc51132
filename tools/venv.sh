# If no working .venv exists, creates one with the newest Python from 3.11 to 3.14 that has the venv module.
# If there is no such Python, prints what to install. PYTHON=/path/to/python chooses another Python.
set -eu

fits='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))'
version='import sys; print("%d.%d" % sys.version_info[:2])'

if .venv/bin/python -c "$fits" 2>/dev/null && .venv/bin/python -m pip --version >/dev/null 2>&1; then
    exit 0
fi

bare=
for python in ${PYTHON:-python3.14 python3.13 python3.12 python3.11 python3 python}; do
    "$python" -c "$fits" >/dev/null 2>&1 || continue
    if "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        echo "Making .venv with Python $("$python" -c "$version")"
        exec "$python" -m venv --clear .venv
    fi
    bare=${bare:-$("$python" -c "$version")}
done

if [ -n "$bare" ]; then
    echo "Python $bare is installed, but its venv module is not. On Debian and Ubuntu: apt install python$bare-venv" >&2
else
    echo "Fatura needs Python 3.11, 3.12, 3.13 or 3.14 (its PostgreSQL wheel exists for these versions); none was found." >&2
    echo "Debian and Ubuntu: apt install python3 python3-venv. macOS: brew install python@3.13." >&2
    echo "If Python is installed in another place: make PYTHON=/path/to/python3 ..." >&2
fi
exit 1
