package guest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Options say where guests are built.
type Options struct {
	// Cache is the folder that keeps packages and built guests between runs; DefaultCache if empty.
	// It is made if needed, and needs some 100 MB for Tiny and 2 GB for Debian.
	Cache string
	// Log gets a line for each step that takes time; none if nil.
	Log io.Writer
}

// DefaultCache is $NODEVIRT_CACHE, or nodevirt in the user's cache folder.
func DefaultCache() string {
	if dir := os.Getenv("NODEVIRT_CACHE"); dir != "" {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil { // a service without $HOME
		home = "/root"
	}
	return filepath.Join(home, ".cache", "nodevirt")
}

// CacheDir is the folder that Cache says.
func (o Options) CacheDir() string {
	if o.Cache != "" {
		return o.Cache
	}
	return DefaultCache()
}

// Packages is the folder of downloaded packages.
func (o Options) Packages() string { return filepath.Join(o.CacheDir(), "packages") }

// step writes a line about a step that begins.
func (o Options) step(format string, args ...any) {
	if o.Log != nil {
		_, _ = fmt.Fprintf(o.Log, format+"\n", args...)
	}
}
