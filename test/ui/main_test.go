//go:build ui

package ui

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

var source = flag.String("ui", "", "the folder with kubevirt-manager's source, built by test/ui/build")

// suite is what the tests share. It is set before the first test runs.
var suite struct {
	*cluster.Cluster
	address string // of kubectl proxy, as a browser of this machine reaches it
	image   string // of the guest's registry disk
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(cluster.Main(m, cluster.Options{Nodes: 1, Storage: true}, prepare))
}

func prepare(ctx context.Context, c *cluster.Cluster) error {
	suite.Cluster = c
	pages := filepath.Join(*source, "dist", "kubevirtmgr-webui", "browser")
	if _, err := os.Stat(filepath.Join(pages, "index.html")); *source == "" || err != nil {
		return fmt.Errorf("missing flag: -ui FOLDER, in which test/ui/build was run (%w)", err)
	}
	disk, err := guest.TinyWithSATA(ctx, c.Control().GuestOptions()) // the bus of disks whose form says none
	if err != nil {
		return err
	}
	img, err := images.RegistryDisk(disk, images.DiskOptions{AsFolder: true}) // CDI reads no other
	if err != nil {
		return err
	}
	if _, err := c.Push(ctx, "tiny:1", img); err != nil {
		return err
	}
	suite.image = c.RegistryAddress() + "/tiny:1"
	if err := c.Deploy(ctx); err != nil {
		return err
	}
	if err := c.StartCDI(ctx); err != nil {
		return err
	}
	crd, err := os.ReadFile(filepath.Join(*source, "kubernetes", "crd.yaml"))
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, string(crd)+networks); err != nil {
		return err
	}
	for _, name := range []string{"images.kubevirt-manager.io", "network-attachment-definitions.k8s.cni.cncf.io"} {
		if err := c.WaitFor(ctx, "crd/"+name, "condition=Established"); err != nil {
			return err
		}
	}
	return serve(c, pages)
}

// networks is Multus' kind: the UI's form offers the pod's network only if the cluster has it.
const networks = `
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: network-attachment-definitions.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names:
    {plural: network-attachment-definitions, singular: network-attachment-definition, kind: NetworkAttachmentDefinition}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

const proxyAddress = "127.0.0.1:8001"

// serve starts kubectl proxy as the UI's own image does, and has a port of this machine lead to it, since
// the cluster's networks are separate from the browser's. Both end with the process.
func serve(c *cluster.Cluster, pages string) error {
	proxy := c.KubectlCommand(context.Background(), "proxy", "--www="+pages, "--www-prefix=/", "--api-prefix=/k8s/")
	proxy.Stderr = os.Stderr
	if err := proxy.Start(); err != nil {
		return fmt.Errorf("start kubectl proxy: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, proxy.Process.Kill())
	}
	suite.address = listener.Addr().String()
	go func() {
		for {
			browser, err := listener.Accept()
			if err != nil {
				return
			}
			go forward(c, browser)
		}
	}()
	return nil
}

func forward(c *cluster.Cluster, browser net.Conn) {
	defer browser.Close()
	server, err := c.Control().Dial(context.Background(), "tcp", proxyAddress)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, browser)
		_ = server.Close()
	}()
	_, _ = io.Copy(browser, server)
}
