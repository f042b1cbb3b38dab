# What both trials use; sourced.

say() { echo "try: $*"; }
fail() { echo "try: $*" >&2; exit 1; }
# has TEXT COMMAND... checks that what a command prints has the text in it.
has() {
  local text=$1 out
  shift
  out=$("$@") || fail "$*: failed: $out"
  [[ $out == *"$text"* ]] || fail "$*: no $text in: $out"
}
# until_true WHAT COMMAND... waits for the command to succeed.
until_true() {
  local what=$1
  shift
  for _ in $(seq 600); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.1
  done
  fail "$what: not in 60 s"
}
