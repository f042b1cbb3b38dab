package control

// Exec is a command for a sandbox that runs, of OpExec. Its standard files go with the
// request. The reply comes when the command and all that is known to belong to it have
// ended, and says how in Code or Signaled.
type Exec struct {
	// ID names the command for OpEnd.
	ID   string   `json:"id"`
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
	Cwd  string   `json:"cwd"`
	UID  int      `json:"uid"`
	GID  int      `json:"gid"`
}
