package procid

import "syscall"

func newWatcher(id ID, _ int) Watcher { return newPoller(id) }

func forkExec(path string, argv []string, attr *syscall.ProcAttr) (pid, fd int, err error) {
	pid, err = syscall.ForkExec(path, argv, attr)
	return pid, -1, err
}

func openProcess(int) int { return -1 }

func closeFD(int) {}
