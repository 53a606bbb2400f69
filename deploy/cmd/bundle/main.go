// Command bundle makes the image that holds all software of a node, and the image's bill of materials; with -update, it
// writes the lock files instead. It takes packages of Debian from the archives that the machine's apt uses.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/nodevirt/nodevirt/deploy/bundle"
	"github.com/nodevirt/nodevirt/deploy/image"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		os.Exit(1)
	}
}

// options are the command's flags.
type options struct {
	bundle.Options
	name, out string
	push      bool
	lists     string
	update    bool
}

func run(ctx context.Context, args []string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if o.Archives.Main == "" || o.Archives.Security == "" {
		if o.Archives, err = bundle.MachineArchives(ctx); err != nil {
			return err
		}
	}
	if o.update {
		return update(ctx, o)
	}
	return build(ctx, o)
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("bundle", flag.ContinueOnError)
	flags.StringVar(&o.Architecture, "architecture", "amd64", "amd64 or arm64, the `name` of the nodes' architecture")
	flags.StringVar(&o.Programs, "programs", "bin/packages/programs", "the `folder` with the programs of a node")
	flags.StringVar(&o.Version, "version", "unknown", "`text` of the image's label")
	flags.StringVar(&o.Cache, "cache", "", "the `folder` that keeps downloaded packages (default: in the user's cache)")
	flags.StringVar(&o.Archives.Main, "archive", os.Getenv("DEBIAN_ARCHIVE"), "`address` of Debian's archive (default: apt's)")
	flags.StringVar(&o.Archives.Security, "security-archive", os.Getenv("DEBIAN_SECURITY_ARCHIVE"), "`address` of Debian's security archive (default: apt's)")
	flags.StringVar(&o.name, "name", "registry.example.com/nodevirt/nodevirt-bundle:latest", "the image's `name`")
	flags.StringVar(&o.out, "o", "", "write the image to a `file`, and its bill of materials beside it")
	flags.BoolVar(&o.push, "push", false, "push the image to its registry")
	flags.StringVar(&o.lists, "lists", "deploy/bundle/lists", "the `folder` with the lists of packages")
	flags.BoolVar(&o.update, "update", false, "write the lock files among the lists")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case !o.update && o.out == "":
		return o, errors.New("say what to do: -update, or -o FILE")
	}
	o.Lists = bundle.Lists{FS: os.DirFS(o.lists)}
	if o.Cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return o, err
		}
		o.Cache = filepath.Join(dir, "nodevirt", "bundle")
	}
	return o, nil
}

// update writes the lock files of all architectures.
func update(ctx context.Context, o options) error {
	for _, architecture := range bundle.Architectures() {
		packages, err := o.Lists.Resolve(ctx, o.Archives, architecture)
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if err := bundle.WriteLock(&text, packages); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(o.lists, bundle.LockFile(architecture)), text.Bytes(), 0o644); err != nil {
			return err
		}
		fmt.Printf("%s: %d packages\n", architecture, len(packages))
	}
	return nil
}

func build(ctx context.Context, o options) (err error) {
	as, err := name.ParseReference(o.name)
	if err != nil {
		return fmt.Errorf("-name: %w", err)
	}
	if o.Scratch, err = os.MkdirTemp(filepath.Dir(o.out), ".bundle-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Scratch)) }()
	made, err := bundle.Build(ctx, o.Options)
	if err != nil {
		return err
	}
	if err := image.WriteArchive(o.out, as, made.Image); err != nil {
		return fmt.Errorf("write %s: %w", o.out, err)
	}
	if err := writeBOM(o.out+".cdx.json", made.BOM); err != nil {
		return err
	}
	if o.push {
		err := remote.Write(as, made.Image, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
		if err != nil {
			return fmt.Errorf("push %s: %w", as, err)
		}
	}
	return describe(as, made.Image)
}

func writeBOM(file string, bom *cyclonedx.BOM) error {
	var text bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}

// describe prints the sizes of the layers, and the name by which a manifest can refer to the image.
func describe(as name.Reference, img v1.Image) error {
	manifest, err := img.Manifest()
	if err != nil {
		return err
	}
	for _, layer := range manifest.Layers {
		fmt.Printf("%-10s %6.1f MiB\n", layer.Annotations[bundle.LayerAnnotation], float64(layer.Size)/(1<<20))
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s@%s\n", as.Context(), digest)
	return nil
}
