package config

import (
	"testing"
	"testing/fstest"
)

func TestMemoryOf(t *testing.T) {
	const meminfo = "MemFree:  1 kB\nMemTotal:       16777216 kB\nMemAvailable: 2 kB\n"
	for name, tt := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing":            {nil, 0},
		"the machine":        {map[string]string{"proc/meminfo": meminfo}, 16 << 30},
		"unreadable":         {map[string]string{"proc/meminfo": "MemTotal: many kB\n"}, 0},
		"no limit":           {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 16 << 30},
		"its own limit":      {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1048576\n", "sys/fs/cgroup/a/memory.max": "2097152\n"}, 1 << 20},
		"one above":          {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "2097152\n"}, 2 << 20},
		"in a container":     {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "2097152\n"}, 2 << 20},
		"more than there is": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "99999999999999\n"}, 16 << 30},
		"version 1": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "7:cpu:/x\n5:memory:/docker/abc\n0::/x\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "3145728\n"}, 3 << 20},
		"version 1 with a path of the host": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "5:memory:/docker/abc\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "4194304\n"}, 4 << 20},
		"odd lines": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "\nx\n0::/../../etc\n"}, 16 << 30},
	} {
		root := fstest.MapFS{}
		for path, data := range tt.files {
			root[path] = &fstest.MapFile{Data: []byte(data)}
		}
		if got := memoryOf(root); got != tt.want {
			t.Errorf("%s: got %d, want %d", name, got, tt.want)
		}
	}
}
