# A program whose first argument says what it does.
case $1 in
answers) echo "forty-two" ;;
silent) ;;
fails) echo "no such thing" >&2; exit 3 ;;
killed) kill -KILL $$ ;;
structured) echo '{"sum": 3}' ;;
misfit) echo '{"sum": "three"}' ;;
esac
