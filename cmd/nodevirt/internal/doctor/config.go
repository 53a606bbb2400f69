package doctor

import (
	"errors"
	"io/fs"
	"os"

	"github.com/nodevirt/nodevirt/shim/config"
)

// defaultConfig is the shim's config file, as its unit passes it.
const defaultConfig = "/etc/nodevirt/nodevirt-shim.toml"

// present returns the path of a file, empty if there is none. A file that doctor may not read is there.
func present(path string) string {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return path
}

// findable returns why a file cannot be opened, but for missing rights: [readConfig] says what these mean.
func findable(path string) error {
	f, err := os.Open(path)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = f.Close()
	return nil
}

// readConfig reads the shim's config file, and returns the built-in values if that fails: the other checks can still
// find something.
func readConfig(path string) (config.Config, Finding) {
	c, err := config.Load(path, func(*config.Config) error { return nil })
	f := ok("%s", path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		c, f = config.Default(), warn("run doctor as root", "%v; the other checks use built-in values", err)
	case err != nil:
		c, f = config.Default(), fail("correct the file, and restart nodevirt-shim, which does not start with it", "%v", err)
	case path == "":
		f = ok("built-in values: there is no %s", defaultConfig)
	}
	f.Check = "config"
	return c, f
}
