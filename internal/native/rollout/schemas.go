package rollout

// The schemas of the tools. What is answered may have more than they say: they
// are read by models, which have no use for all of it.
const (
	text    = `{"type":"string"}`
	number  = `{"type":"integer"}`
	boolean = `{"type":"boolean"}`
	moment  = `{"type":"string","format":"date-time"}`
	labels  = `{"type":"object","additionalProperties":{"type":"string"}}`

	sessionArg = `"session_id":{"type":"string","description":"Id of the session; default the one that this call is made in"}`
	labelsArg  = `"labels":{"type":"object","additionalProperties":{"type":"string"},"description":`
	ttlArg     = `"ttl":{"type":"string","description":"Closed after so long, such as 2h; 0s for no end"}`

	keyArg = `"idempotency_key":{"type":"string","minLength":1,"maxLength":256,"description":"The same key with the same arguments gives the same answer, and makes nothing twice"}`

	openInput = `{"type":"object","properties":{` +
		`"from":{"type":"string","description":"Name or id of a snapshot to begin with; default nothing"},` +
		labelsArg + `"What it is called, for list_sessions"},` + ttlArg + `,` +
		`"idle":{"type":"string","description":"Closed when unused for so long, such as 30m; 0s for never"},` +
		`"servers":{"type":"array","items":{"type":"string"},"minItems":1,"description":"Only these servers; default those that the snapshot was made with, or all"},` +
		`"eager":{"type":"boolean","description":"Start all of its servers now and not when they are first used"}}}`
	forkInput = `{"type":"object","properties":{` + sessionArg + `,` +
		`"count":{"type":"integer","minimum":1,"maximum":10000,"default":1,"description":"How many"},` +
		labelsArg + `"What they are called, on top of what it is called itself"},` + ttlArg + `,` + keyArg + `}}`
	snapshotInput = `{"type":"object","properties":{` + sessionArg + `,` +
		`"name":{"type":"string","description":"What the snapshot is called; one with a name is a template for open_session"},` +
		labelsArg + `"Labels of the snapshot"}}}`
	rewindInput = `{"type":"object","properties":{` + sessionArg + `,` +
		`"snapshot":{"type":"string","description":"Name or id of the snapshot; default the newest of the session"}}}`
	closeInput = `{"type":"object","properties":{"session_id":{"type":"string","description":"Id of the session"}},"required":["session_id"]}`
	listInput  = `{"type":"object","properties":{` +
		`"parent":{"type":"string","description":"Only forks of the session with this id"},` +
		labelsArg + `"Only those that have all of these"},` +
		`"limit":{"type":"integer","minimum":1,"maximum":1000,"default":100,"description":"How many at most"},` +
		`"after":{"type":"string","description":"The next of an earlier answer"}}}`

	sessionFields = `"id":` + text + `,"kind":{"type":"string","enum":["opened","default","named","client"]},"name":` + text + `,"owner":` + text + `,"labels":` + labels +
		`,"parent":` + text + `,"from":` + text + `,"depth":` + number + `,"created":` + moment + `,"used":` + moment + `,"expires":` + moment +
		`,"idle":` + text + `,"url":` + text
	sessionOutput = `{"type":"object","properties":{` + sessionFields + `},"required":["id","kind","created"]}`
	openedOutput  = `{"type":"object","properties":{` + sessionFields + `,"token":` + text + `},"required":["id","kind","created","token"]}`
	forksOutput   = `{"type":"object","properties":{"parent":` + text + `,"sessions":{"type":"array","items":` + openedOutput + `},"call":` + text +
		`,"paused_ms":{"type":"number"}},"required":["parent","sessions"]}`
	listOutput     = `{"type":"object","properties":{"sessions":{"type":"array","items":` + sessionOutput + `},"next":` + text + `},"required":["sessions"]}`
	snapshotOutput = `{"type":"object","properties":{"id":` + text + `,"name":` + text + `,"owner":` + text + `,"session":` + text +
		`,"labels":` + labels + `,"created":` + moment + `,"size":` + number + `,"call":` + text + `},"required":["id","created","size"]}`
	closedOutput = `{"type":"object","properties":{"session_id":` + text + `,"closed":` + boolean + `},"required":["session_id","closed"]}`
)
