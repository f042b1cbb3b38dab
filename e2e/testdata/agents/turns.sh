# Takes one line for each turn, notes in its folder that it has had it, and answers it.
while read -r line; do
	case $line in
	*'"type":"shutdown"'*) exit 0 ;;
	esac
	mark=${line#*\"mark\":\"} mark=${mark%%\"*}
	echo $$ >>"ran-$mark"
	echo "{\"type\":\"turn_complete\",\"result\":\"done $mark\"}"
done
