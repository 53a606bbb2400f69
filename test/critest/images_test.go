//go:build critest

package critest

import (
	_ "embed"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
)

var (
	//go:embed programs/web/main.go
	webSource []byte
	//go:embed programs/nonewprivs/main.go
	nonewprivsSource []byte
)

// The folders of critest's images, which are in two registries. The node's mirror has them all.
const (
	e2e      = "e2e-test-images/"
	critools = "k8s-staging-cri-tools/"
)

// path is the environment of each image.
const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// builder makes critest's images out of a few.
type builder struct {
	t          *testing.T
	options    guest.Options
	shell      v1.Image // busybox, with what critest wants beside
	pause      v1.Image
	nonewprivs v1.Image
	web        images.File // without its name
}

func newBuilder(t *testing.T, o guest.Options) *builder {
	t.Helper()
	b := &builder{t: t, options: o}
	b.web = b.program("web", webSource)
	nonewprivs := b.program("nonewprivs", nonewprivsSource)
	nonewprivs.Mode = 0o4755
	busybox, err := images.Busybox(t.Context(), o)
	b.check(err)
	pause, err := images.Pause(t.Context(), o)
	b.check(err)
	// critest counts its tags: it must not be the image that the node has for its sandboxes.
	b.pause, err = images.Extend(pause, v1.Config{Entrypoint: []string{"/pause"}, Labels: map[string]string{"critest": ""}})
	b.check(err)
	b.shell = b.above(busybox, v1.Config{},
		images.File{Name: "etc/passwd", Data: []byte("root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/var/www:/bin/false\n" +
			"nobody:x:65534:65534::/home:/bin/false\n")},
		images.File{Name: "etc/group", Data: []byte("root:x:0:\nwww-data:x:33:\nnogroup:x:65534:\n")},
		// Debian's busybox has none of these two.
		images.File{Name: "bin/pgrep", Mode: 0o755, Data: []byte("#!/bin/sh\nexec pidof \"$@\"\n")},
		images.File{Name: "bin/ipcs", Mode: 0o755, Data: []byte("#!/bin/sh\nexec cat /proc/sysvipc/shm\n")})
	b.nonewprivs = b.above(busybox, v1.Config{Entrypoint: []string{"/nonewprivs"}}, nonewprivs)
	return b
}

func (b *builder) check(err error) {
	b.t.Helper()
	assert.NilError(b.t, err)
}

func (b *builder) program(name string, source []byte) images.File {
	b.t.Helper()
	file, err := images.Program(b.t.Context(), b.options, name, source)
	b.check(err)
	return file
}

// above is an image with one more layer.
func (b *builder) above(img v1.Image, c v1.Config, files ...images.File) v1.Image {
	b.t.Helper()
	c.Env = append(c.Env, path)
	if c.Entrypoint == nil {
		c.Cmd = []string{"sh"}
	}
	img, err := images.Extend(img, c, images.Layer{Files: files})
	b.check(err)
	return img
}

// marked is the shell's image with different content, and so with a different digest.
func (b *builder) marked(mark string) v1.Image {
	return b.above(b.shell, v1.Config{}, images.File{Name: "mark", Data: []byte(mark)})
}

func (b *builder) user(user string) v1.Image { return b.above(b.shell, v1.Config{User: user}) }

// server is a web server's image. critest finds nginx by its name and by this argument.
func (b *builder) server(name, port string) v1.Image {
	file := b.web
	file.Name = "usr/sbin/" + name
	return b.above(b.shell, v1.Config{Env: []string{"PORT=" + port}, Entrypoint: []string{"/" + file.Name, "master process"}}, file)
}

// predefinedGroup is an image whose user is in a further group.
func (b *builder) predefinedGroup() v1.Image {
	return b.above(b.shell, v1.Config{User: "1000"},
		images.File{Name: "etc/passwd", Data: []byte("root:x:0:0:root:/root:/bin/sh\ndefault-user:x:1000:1000::/home:/bin/sh\n")},
		images.File{Name: "etc/group", Data: []byte("root:x:0:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n")})
}

// all are the images that critest pulls, by their names without the registry.
func (b *builder) all() map[string]v1.Image {
	all := map[string]v1.Image{
		"pause:3.9":                                        b.pause, // asked for in two registries
		e2e + "busybox:1.29-2":                             b.marked("e2e"),
		e2e + "nginx:1.14-2":                               b.server("nginx", "80"),
		e2e + "httpd:2.4.39-4":                             b.server("httpd", "80"),
		e2e + "nonewprivs:1.3":                             b.nonewprivs,
		critools + "hostnet-nginx-amd64:latest":            b.server("nginx", "12003"),
		critools + "test-image-user-uid:latest":            b.user("1002"),
		critools + "test-image-user-username:latest":       b.user("www-data"),
		critools + "test-image-user-uid-group:latest":      b.user("1003:1004"),
		critools + "test-image-user-username-group:latest": b.user("www-data:1004"),
		critools + "test-image-predefined-group:latest":    b.predefinedGroup(),
		critools + "test-image-latest:latest":              b.marked("latest"),
	}
	for _, mark := range []string{"test", "all"} {
		all[critools+"test-image-tag:"+mark] = b.marked(mark)
	}
	same := b.marked("same")
	for _, number := range []string{"1", "2", "3"} {
		all[critools+"test-image-"+number+":latest"] = b.marked(number)
		all[critools+"test-image-tags:"+number] = same
	}
	return all
}

// push puts all images into a node's registry.
func push(t *testing.T, n *node.Node, all map[string]v1.Image) {
	t.Helper()
	for name, img := range all {
		if _, err := n.Push(t.Context(), name, img); err != nil {
			t.Fatal(err)
		}
	}
}
