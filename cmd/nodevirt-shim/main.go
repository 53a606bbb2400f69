// Command nodevirt-shim is the node's CRI runtime: it serves the kubelet and
// crictl, forwards ordinary containers to containerd, and runs containers of pods
// with the runtime handler "vm" as virtual machines if their image contains a disk.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nodevirt/nodevirt/cmd/internal/program"
	"github.com/nodevirt/nodevirt/shim"
	"github.com/nodevirt/nodevirt/shim/config"
	"github.com/nodevirt/nodevirt/shim/domain"
)

// version is set at link time; without that it is the module's, from build info.
var version string

const usage = `nodevirt-shim serves CRI to a kubelet or crictl. It runs VMs itself and forwards
ordinary containers to containerd.

Usage:
  nodevirt-shim [flags]

Flags override the config file, whose fields and defaults are in docs/config.md.

Flags:
`

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nodevirt-shim:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("nodevirt-shim", flag.ContinueOnError)
	var (
		file        = flags.String("config", "", "config `file` in TOML (default: none, all fields have defaults)")
		listen      = flags.String("listen", "", "`path` of the unix socket to serve CRI on")
		backend     = flags.String("containerd", "", "`path` of containerd's unix socket")
		accelerator = flags.String("accelerator", "", "auto, kvm or tcg")
		level       = flags.String("log-level", "", "debug, info, warn or error")
		mend        = flags.Bool("before-libvirtd", false, "remove the domains that libvirtd was starting when it was killed, and the folders\nthat a power cut left, and exit; fail if libvirtd has no room for the state of guests\nthat run; for libvirtd's unit, while libvirtd does not run")
	)
	if done, err := program.Parse(flags, usage, program.Version(version), args); done || err != nil {
		return err
	}
	c, err := config.Load(*file, func(c *config.Config) error {
		set(&c.Listen, *listen)
		set(&c.Containerd.Address, *backend)
		set(&c.VM.Accelerator, *accelerator)
		if *level == "" {
			return nil
		}
		if err := c.LogLevel.UnmarshalText([]byte(*level)); err != nil {
			return fmt.Errorf("-log-level: %q is none of debug, info, warn, error", *level)
		}
		return nil
	})
	log := program.Log(c.LogLevel)
	if *mend {
		return beforeLibvirtd(ctx, c, err, log)
	}
	if err != nil {
		return err
	}
	log.Info("nodevirt-shim", "version", program.Version(version))
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := shim.Run(ctx, c, program.Version(version), log); ctx.Err() == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	return nil // ended while it waited for containerd
}

// beforeLibvirtd repairs libvirtd's files. Its error keeps libvirtd from starting, so that it
// returns one only if libvirtd would kill guests; it logs the others, that of the config too.
func beforeLibvirtd(ctx context.Context, c config.Config, broken error, log *slog.Logger) error {
	if broken != nil {
		log.Error("reading the config failed", "error", broken)
		c = config.Default()
	}
	if err := errors.Join(removeUnborn(c.Libvirt.Run, log), removeAbandoned(c, log)); err != nil {
		log.Error("repairing libvirtd's files failed", "error", err)
	}
	err := awaitRoom(ctx, c.Libvirt.Run, log)
	if errors.Is(err, domain.ErrNoRoom) {
		return fmt.Errorf("start libvirtd: %w", err)
	}
	if err != nil {
		log.Error("checking the room for libvirtd's files failed", "error", err)
	}
	return nil
}

// roomTime is how long libvirtd's start waits for room. systemd starts a unit that failed again
// at once, but gives up after a few failures in ten seconds.
const roomTime = 30 * time.Second

func awaitRoom(ctx context.Context, run string, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, roomTime)
	defer cancel()
	for told := false; ; told = true {
		err := domain.CheckRoom(run)
		if !errors.Is(err, domain.ErrNoRoom) {
			return err
		}
		if !told {
			log.Error("libvirtd's start waits for room", "error", err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

// removeUnborn removes the state of domains that the next libvirtd would consider
// as starting. It continues after an error.
func removeUnborn(libvirtRun string, log *slog.Logger) error {
	unborn, err := domain.FindUnborn(libvirtRun)
	errs := []error{err}
	for _, u := range unborn {
		if err := u.Remove(); err != nil {
			errs = append(errs, err)
			continue
		}
		log.Info("removed the state of a domain that libvirtd was starting when it was killed", "domain", u.Name)
	}
	return errors.Join(errs...)
}

// libvirtState is set when libvirt is built, like the folder in libvirtd's drop-in.
const libvirtState = "/var/lib/libvirt/qemu"

// removeAbandoned removes the folders of domains that ended with the node's power.
func removeAbandoned(c config.Config, log *slog.Logger) error {
	removed, err := domain.Abandoned{
		State: libvirtState, Run: c.Libvirt.Run, UIDBase: c.VM.UIDBase, UIDCount: c.VM.UIDCount,
	}.Remove()
	for _, folder := range removed {
		log.Info("removed a folder of a domain that is gone", "folder", folder)
	}
	return err
}

func set(field *string, value string) {
	if value != "" {
		*field = value
	}
}
