# A program whose first argument says what it does, once it has read its input.
input=$(cat)
case $input in
'{"schema_version":"2.2"'*'"system_prompt":"You are the system prompt."'*) ;;
*) echo "odd input: $input" >&2; exit 9 ;;
esac
case $1 in
answers)
  echo '{"type":"bind","executor_session_id":"conversation-1"}'
  echo '{"type":"text","text":"Let me see."}'
  echo '{"type":"tool","id":"1","name":"multiply","arguments":{"a":6,"b":7}}'
  echo '{"type":"tool","id":"1","done":true,"text":"42"}'
  echo 'a remark'
  echo '{"type":"usage","input_tokens":10,"output_tokens":3}'
  echo '{"type":"result","result":"forty-two"}' ;;
silent) ;;
fails) echo "no such thing" >&2; exit 3 ;;
killed) kill -KILL $$ ;;
structured) echo '{"sum": 3}' ;;
misfit) echo '{"sum": "three"}' ;;
esac
