package confine

import "golang.org/x/sys/unix"

const machine = unix.AUDIT_ARCH_AARCH64

// There are no calls of this processor alone, and none by the older names.
var refusedHere, attributesHere []uint32
