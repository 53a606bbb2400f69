package doctor

import (
	"context"
	"os"
	"os/exec"
	"time"

	"github.com/nodevirt/nodevirt/shim/config"
)

// quickly is how long the C library may look for the machine's own name. A local file takes it a
// few milliseconds; a name server that is not there, five seconds and more.
const quickly = time.Second

// checkHostname asks as libvirtd does at its start, and for some of its calls: by the C library.
func checkHostname(ctx context.Context, _ config.Config) Finding {
	name, err := os.Hostname()
	if err != nil {
		return warn("set the machine's name", "%v", err)
	}
	return resolves(ctx, name)
}

// resolves does not mind a name that nobody knows, if only that is told soon.
func resolves(ctx context.Context, name string) Finding {
	ctx, cancel := context.WithTimeout(ctx, quickly)
	defer cancel()
	err := exec.CommandContext(ctx, "getent", "ahosts", name).Run()
	if ctx.Err() != nil {
		return warn("put the name into /etc/hosts", "libvirtd waits at its start until name servers have been asked for %q, the machine's own name", name)
	}
	if err != nil {
		return ok("%q, the machine's own name, is unknown, but that is found out soon", name)
	}
	return ok("%q, the machine's own name, is found soon", name)
}
