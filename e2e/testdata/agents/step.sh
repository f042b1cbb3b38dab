# Does one step: notes in its folder that it has run, takes its time, and ends as it is told.
mark=$1 takes=$2 end=$3
echo $$ >>"ran-$mark"
case $end in
wait)
	echo '{"type":"text","text":"waiting"}'
	exec sleep 300
	;;
fail)
	sleep "$takes"
	echo "$mark can't be done" >&2
	exit 3
	;;
*)
	sleep "$takes"
	echo "{\"type\":\"result\",\"result\":{\"result_text\":\"done $mark\"}}"
	;;
esac
