//go:build conformance

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
)

// The folder of most images. The nodes' mirror has them all, whatever their registry.
const e2e = "e2e-test-images/"

const libraries = "lib/x86_64-linux-gnu/"

var path = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

// builder makes the suite's images: the programs that the suite builds itself, Debian's where it takes
// those of Alpine, and the busybox of package images.
type builder struct {
	ctx     context.Context
	options guest.Options
	bin     string
	busybox v1.Image
}

// pushImages puts the images that specs name into a cluster's registry.
func pushImages(ctx context.Context, c *cluster.Cluster) error {
	bin, err := node.CheckoutBin()
	if err != nil {
		return err
	}
	b := builder{ctx: ctx, options: c.Control().GuestOptions(), bin: bin}
	if b.busybox, err = images.Busybox(ctx, b.options); err != nil {
		return err
	}
	for name, build := range map[string]func() (v1.Image, error){
		e2e + "agnhost:2.63.0":             b.agnhost,
		e2e + "agnhost:2.55":               b.agnhost,
		e2e + "busybox:1.37.0-1":           b.shell,
		e2e + "glibc-dns-testing:2.0.0":    b.dns,
		e2e + "ipc-utils:1.4":              b.ipc,
		e2e + "kitten:1.8":                 func() (v1.Image, error) { return b.pet("kitten.jpg") },
		e2e + "nautilus:1.8":               func() (v1.Image, error) { return b.pet("nautilus.jpg") },
		e2e + "nginx:1.15-4":               func() (v1.Image, error) { return b.web("1.15") },
		e2e + "nginx:1.27-0":               func() (v1.Image, error) { return b.web("1.27") },
		e2e + "nonewprivs:1.4":             b.nonewprivs,
		e2e + "nonroot:1.5":                b.nonroot,
		e2e + "regression-issue-74839:1.4": func() (v1.Image, error) { return b.program("regression-issue-74839") },
		e2e + "resource-consumer:1.14":     b.consumer,
		e2e + "sample-apiserver:1.29.2":    b.apiserver,
		"pause:3.10.2":                     func() (v1.Image, error) { return images.Pause(ctx, b.options) },
		"etcd:3.6.8-0":                     b.etcd,
	} {
		img, err := build()
		if err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
		if _, err := c.Push(ctx, name, img); err != nil {
			return err
		}
	}
	return nil
}

func (b builder) above(img v1.Image, c v1.Config, files ...images.File) (v1.Image, error) {
	c.Env = append(c.Env, path...)
	return images.Extend(img, c, images.Layer{Files: files})
}

// built is a program that the suite's module holds.
func (b builder) built(program, as string) images.File {
	return images.File{Name: as, Mode: 0o755, From: filepath.Join(b.bin, "e2e-"+program)}
}

// program is an image with nothing but a program of the suite's above the busybox.
func (b builder) program(program string) (v1.Image, error) {
	return b.above(b.busybox, v1.Config{Entrypoint: []string{"/" + program}}, b.built(program, program))
}

// debian are programs of Debian packages in /usr/bin, and their libraries.
func (b builder) debian(packages []string, programs ...string) ([]images.File, error) {
	found, err := guest.ProgramsOf(b.ctx, b.options, packages, programs...)
	if err != nil {
		return nil, err
	}
	var files []images.File
	for name, data := range found.Programs {
		files = append(files, images.File{Name: "usr/bin/" + name, Mode: 0o755, Data: data})
	}
	for name, data := range found.Libraries {
		if !strings.HasPrefix(name, "ld-linux") { // the busybox has it
			files = append(files, images.File{Name: libraries + name, Mode: 0o755, Data: data})
		}
	}
	return files, nil
}

// agnhost has the suite's program for everything, and the tools that specs run beside it.
func (b builder) agnhost() (v1.Image, error) {
	files, err := b.debian(
		[]string{"bind9-dnsutils", "curl", "netcat-openbsd", "iproute2", "iperf", "bash", "util-linux", "libc-bin"},
		"dig", "curl", "nc.openbsd", "ip", "ss", "iperf", "bash", "ipcs", "ipcmk", "getent")
	if err != nil {
		return nil, err
	}
	registry, err := b.registry()
	if err != nil {
		return nil, err
	}
	files = append(files, registry...)
	files = append(files,
		b.built("agnhost", "agnhost"),
		images.File{Name: "agnhost-2", Link: "agnhost"},
		images.File{Name: "coredns", Mode: 0o755, From: filepath.Join(b.bin, "coredns")},
		images.File{Name: "localhost.crt", From: filepath.Join(b.bin, "e2e-localhost.crt")},
		images.File{Name: "localhost.key", From: filepath.Join(b.bin, "e2e-localhost.key")},
		images.File{Name: "uploads/"},
		images.File{Name: "usr/local/"}, images.File{Name: "usr/local/bin/"},
		images.File{Name: "usr/local/bin/iperf", Link: "/usr/bin/iperf"},
		images.File{Name: "usr/local/bin/nc", Link: "/usr/bin/nc.openbsd"},
		images.File{Name: "bin/bash", Link: "/usr/bin/bash"},
		images.File{Name: "etc/passwd", Data: []byte("root:x:0:0:root:/root:/bin/sh\n" +
			"user-defined-in-image:x:1000:1000::/home:/bin/sh\nnobody:x:65534:65534::/home:/bin/false\n")},
		images.File{Name: "etc/group", Data: []byte("root:x:0:\nuser-defined-in-image:x:1000:\n" +
			"group-defined-in-image:x:50000:user-defined-in-image\nnogroup:x:65534:\n")})
	return b.above(b.busybox, v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}, files...)
}

// registry is what agnhost's registry server serves: a pause image under the tag testing.
func (b builder) registry() ([]images.File, error) {
	img, err := images.Pause(b.ctx, b.options)
	if err != nil {
		return nil, err
	}
	manifest, err := img.RawManifest()
	if err != nil {
		return nil, err
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	size, err := img.Size()
	if err != nil {
		return nil, err
	}
	index, err := json.Marshal(v1.IndexManifest{
		SchemaVersion: 2, MediaType: types.OCIImageIndex,
		Manifests: []v1.Descriptor{{
			MediaType: types.OCIManifestSchema1, Size: size, Digest: digest,
			Platform: &v1.Platform{OS: "linux", Architecture: "amd64"},
		}},
	})
	if err != nil {
		return nil, err
	}
	list, _, err := v1.SHA256(strings.NewReader(string(index)))
	if err != nil {
		return nil, err
	}
	const folder = "var/registry/pause/"
	files := []images.File{
		{Name: "var/registry/"}, {Name: folder}, {Name: folder + "manifests/"}, {Name: folder + "blobs/"},
		{Name: folder + "manifests/testing", Data: []byte(list.String() + "\n")},
		{Name: stored(folder+"manifests/", list), Data: index},
		{Name: stored(folder+"manifests/", digest), Data: manifest},
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return nil, err
	}
	configName, err := img.ConfigName()
	if err != nil {
		return nil, err
	}
	files = append(files, images.File{Name: stored(folder+"blobs/", configName), Data: config})
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	for _, l := range layers {
		file, err := layerFile(folder+"blobs/", l)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// stored is where agnhost's registry server looks for an object.
func stored(folder string, digest v1.Hash) string {
	return folder + digest.Algorithm + "/" + digest.Hex[:2] + "/" + digest.Hex + "/data"
}

func layerFile(folder string, l v1.Layer) (images.File, error) {
	digest, err := l.Digest()
	if err != nil {
		return images.File{}, err
	}
	content, err := l.Compressed()
	if err != nil {
		return images.File{}, err
	}
	defer content.Close()
	data, err := io.ReadAll(content)
	return images.File{Name: stored(folder, digest), Data: data}, err
}

// dns has the resolver of the GNU C library.
func (b builder) dns() (v1.Image, error) {
	files, err := b.debian([]string{"bind9-dnsutils", "libc-bin", "bash"}, "dig", "getent", "bash")
	if err != nil {
		return nil, err
	}
	return b.above(b.busybox, v1.Config{Cmd: []string{"bash"}}, files...)
}

func (b builder) ipc() (v1.Image, error) {
	files, err := b.debian([]string{"util-linux"}, "ipcs", "ipcmk", "ipcrm")
	if err != nil {
		return nil, err
	}
	return b.above(b.busybox, v1.Config{Cmd: []string{"sh"}}, files...)
}

// pet serves the name of a picture, which differs between images. A spec mounts the image as a volume, and looks
// for the distribution that the suite's own is made of.
func (b builder) pet(picture string) (v1.Image, error) {
	data := fmt.Sprintf("{\n  \"image\": %q\n}\n", picture)
	return b.above(b.busybox, v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"test-webserver"}},
		b.built("agnhost", "agnhost"),
		images.File{Name: "etc/os-release", Data: []byte("NAME=\"Alpine Linux\"\n")},
		images.File{Name: "data.json", Data: []byte(data)}, images.File{Name: picture, Data: []byte(picture)})
}

// web is a web server of the files in nginx's folder. Specs ask for nothing else of nginx. The mark makes the
// images different.
func (b builder) web(mark string) (v1.Image, error) {
	const folder = "usr/share/nginx/html/"
	return b.above(b.busybox, v1.Config{Entrypoint: []string{"/usr/sbin/nginx"}},
		images.File{Name: "usr/share/"}, images.File{Name: "usr/share/nginx/"}, images.File{Name: folder},
		images.File{Name: folder + "index.html", Data: []byte("<title>Welcome to nginx!</title> " + mark + "\n")},
		images.File{Name: "usr/sbin/nginx", Mode: 0o755, Data: []byte("#!/bin/sh\nexec httpd -f -p 80 -h /" + folder + "\n")})
}

func (b builder) nonewprivs() (v1.Image, error) {
	program := b.built("nonewprivs", "usr/local/bin/nnp")
	program.Mode = 0o4755
	return b.above(b.busybox, v1.Config{Cmd: []string{"nnp"}},
		images.File{Name: "usr/local/"}, images.File{Name: "usr/local/bin/"}, program)
}

// shell is the busybox with bash as its shell. Debian's busybox does not pass on variables whose names
// are no identifiers, such as a ConfigMap's keys.
func (b builder) shell() (v1.Image, error) {
	files, err := b.debian([]string{"bash", "libtinfo6"}, "bash")
	if err != nil {
		return nil, err
	}
	files = append(files, images.File{Name: "bin/sh", Link: "/usr/bin/bash"})
	return b.above(b.busybox, v1.Config{Cmd: []string{"sh"}}, files...)
}

func (b builder) nonroot() (v1.Image, error) {
	return b.above(b.busybox, v1.Config{User: "1234", Cmd: []string{"sh"}})
}

func (b builder) consumer() (v1.Image, error) {
	files, err := b.debian([]string{"stress"}, "stress")
	if err != nil {
		return nil, err
	}
	files = append(files, b.built("resource-consumer", "consumer"), b.built("consume-cpu", "consume-cpu"))
	return b.above(b.busybox, v1.Config{Entrypoint: []string{"/consumer"}}, files...)
}

func (b builder) apiserver() (v1.Image, error) {
	return b.above(b.busybox, v1.Config{Entrypoint: []string{"/sample-apiserver"}}, b.built("sample-apiserver", "sample-apiserver"))
}

func (b builder) etcd() (v1.Image, error) {
	return b.above(b.busybox, v1.Config{Entrypoint: []string{"/usr/local/bin/etcd"}},
		images.File{Name: "usr/local/"}, images.File{Name: "usr/local/bin/"},
		images.File{Name: "usr/local/bin/etcd", Mode: 0o755, From: filepath.Join(b.bin, "etcd")})
}
