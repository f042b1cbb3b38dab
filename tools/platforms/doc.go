// Package platforms checks that Tine compiles on macOS, where the tests don't run. The
// compiler would have to make everything that Tine imports for it, which takes minutes.
package platforms
