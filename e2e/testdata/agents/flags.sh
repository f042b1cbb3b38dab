# Takes the flag --mark, notes in its folder that it has run, and prints JSON.
echo $$ >>"ran-$2"
printf '["%s","%s"]' "$1" "$2"
