package cluster

import (
	"context"
	_ "embed"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/nodevirt/nodevirt/test/images"
)

//go:embed manifests/cdi.yaml
var cdiManifests string

// cdiRegistries has CDI's importer find the images of quay.io in the cluster's registry, as the nodes do. They
// are in test/kubevirt's specs. It is a format of registries.conf(5).
const cdiRegistries = `[[registry]]
prefix = "quay.io"
location = "` + registryAddress + `"
insecure = true
`

// cdiUser is the user of CDI's images. CDI overrides it for most pods.
const cdiUser = "1001"

// cdiPart is one of CDI's images.
type cdiPart struct {
	name     string   // of the image, and of the program that it starts unless command says otherwise
	programs []string // further ones, below bin
	command  []string
}

func (o Options) cdiParts() []cdiPart {
	return []cdiPart{
		{name: "cdi-operator", command: []string{"/usr/bin/cdi-operator"}},
		{name: "cdi-controller"},
		{name: "cdi-apiserver"},
		{name: "cdi-uploadproxy"},
		{name: "cdi-importer", programs: []string{"cdi-containerimage-server", "cdi-image-size-detection"}},
		{name: "cdi-uploadserver"},
		{name: "cdi-cloner", programs: []string{"cdi-cloner-startup"}, command: []string{"/usr/bin/cdi-cloner-startup"}},
	}
}

// cdiTools are the Debian packages whose programs CDI's parts and their probes run: qemu-img, nbdkit, tar, cat,
// and in the cloner's script, du and blockdev. The libraries are what essential packages depend on before they
// can be unpacked, which images.Debian does not follow.
var cdiTools = []string{"bash", "coreutils", "libacl1", "libattr1", "libselinux1", "libpcre2-8-0", "libtinfo6", "nbdkit", "qemu-utils", "tar", "util-linux"}

// StartCDI installs the Containerized Data Importer by its operator, and waits until it is available. Few
// need it: `test/tools/build cdi` makes its programs. The cluster must provide volumes.
func (c *Cluster) StartCDI(ctx context.Context) error {
	manifests, err := os.ReadFile(c.o.bin("cdi-operator.json"))
	if err != nil {
		return fmt.Errorf("find the manifests of CDI's operator; was it built? %w", err)
	}
	if err := c.pushCDI(ctx); err != nil {
		return err
	}
	if err := c.Apply(ctx, string(manifests)); err != nil {
		return err
	}
	if err := c.WaitFor(ctx, "crd/cdis.cdi.kubevirt.io", "condition=Established"); err != nil {
		return err
	}
	if err := c.Apply(ctx, fmt.Sprintf(cdiManifests, registryAddress)); err != nil {
		return err
	}
	return c.WaitFor(ctx, "cdi/cdi", "condition=Available")
}

func (c *Cluster) pushCDI(ctx context.Context) error {
	tools, err := images.Debian(ctx, c.control.GuestOptions(), cdiTools...)
	if err != nil {
		return err
	}
	for _, part := range c.o.cdiParts() {
		var files []images.File
		for _, program := range append([]string{part.name}, part.programs...) {
			files = append(files, images.File{Name: "usr/bin/" + program, Mode: 0o755, From: c.o.bin(program)})
		}
		command := part.command
		if command == nil {
			command = []string{"/usr/bin/" + part.name, "-alsologtostderr"}
		}
		files = append(files,
			images.File{Name: "etc/containers/registries.conf", Data: []byte(cdiRegistries)},
			images.File{Name: "usr/bin/sh", Link: "bash"}, // a script of the package makes Debian's
		)
		img, err := images.FromFiles(v1.Config{
			Entrypoint: command, User: cdiUser, Env: []string{"PATH=/usr/sbin:/usr/bin"},
		}, tools, images.Layer{Files: files})
		if err != nil {
			return err
		}
		if _, err := c.Push(ctx, "cdi/"+part.name+":dev", img); err != nil {
			return err
		}
	}
	return nil
}
