//go:build torture

package torture

const on = true
