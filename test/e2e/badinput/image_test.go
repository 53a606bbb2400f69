package badinput

import (
	"archive/tar"
	"strings"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/images"
)

// folder is an image's files with a folder /disk.
func folder(in ...images.File) []images.File {
	all := []images.File{{Name: "disk/"}}
	for _, f := range in {
		f.Name = "disk/" + f.Name
		all = append(all, f)
	}
	return all
}

func raw(name string) images.File { return images.File{Name: name, Data: make([]byte, 1024)} }

// imageOfPodCases are wrong in what an image holds in /disk by what the pod says of it.
func imageOfPodCases() []badCase {
	vmOnly := annotated("nodevirt.io/vm-container", "vm")
	refused := func(name string, pod func(*runtimeapi.PodSandboxConfig), files ...images.File) badCase {
		c := refusedImage(name, files...)
		c.pod = pod
		return c
	}
	noLayers := refused("no layers", vmOnly)
	noLayers.files = []images.File{}
	return []badCase{
		noLayers,
		refused("no disk", vmOnly, raw("etc/motd")),
		refused("empty folder", vmOnly, folder()...),
		refused("a path through a link", vmiAt("/disk/a/shadow"), folder(images.File{Name: "a", Link: "../../../etc"}, raw("b"))...),
		refused("a path that is not there", vmiAt("/disk/c.img"), folder(raw("a.img"), raw("b.img"))...),
		refused("a path below a disk", vmiAt("/disk/c.img"), raw("disk")),
		refused("a path below a pipe", vmiAt("/disk/c.img"), images.File{Name: "disk", Type: tar.TypeFifo}),
		refused("a path of a long name", vmiAt("/disk/"+strings.Repeat("a", 256)), folder(raw("a.img"))...),
	}
}

// imageCases are wrong in what an image holds in /disk.
func imageCases() []badCase {
	return []badCase{
		refusedImage("two disks", folder(raw("a.img"), raw("b.img"))...),
		refusedImage("link to the node", images.File{Name: "disk", Link: "/etc/shadow"}),
		refusedImage("link upwards", folder(images.File{Name: "a", Link: "../../../etc/shadow"})...),
		refusedImage("disk is a link upwards", images.File{Name: "disk", Link: "../../etc/shadow"}),
		refusedImage("link to a long name", images.File{Name: "disk", Link: strings.Repeat("a", 256)}),
		refusedImage("device", images.File{Name: "disk", Type: tar.TypeBlock}),
		refusedImage("pipe", images.File{Name: "disk", Type: tar.TypeFifo}),
		refusedImage("device in the folder", folder(images.File{Name: "sda", Type: tar.TypeChar})...),
	}
}

func refusedImage(name string, files ...images.File) badCase {
	return badCase{name: name, at: atCreate, files: files, code: codes.InvalidArgument}
}
