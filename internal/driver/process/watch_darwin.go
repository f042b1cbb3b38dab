package process

import "syscall"

func newWatcher(pid int, start uint64, _ int) watcher { return newPoller(pid, start) }

func forkExec(path string, argv []string, attr *syscall.ProcAttr) (pid, fd int, err error) {
	pid, err = syscall.ForkExec(path, argv, attr)
	return pid, -1, err
}

func openProcess(int) int { return -1 }

func closeFD(int) {}
