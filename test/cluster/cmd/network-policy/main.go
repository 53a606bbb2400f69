// Command network-policy enforces NetworkPolicies on a node of a test's cluster; see package netpolicy.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/knftables"

	"github.com/nodevirt/nodevirt/test/netpolicy"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "network-policy:", err)
		os.Exit(1)
	}
}

func run() error {
	node := flag.String("node", "", "the node's name")
	table := flag.String("table", "", "the name of the nftables table, of family inet")
	kubeconfig := flag.String("kubeconfig", "", "the file of a credential that may list all pods, namespaces and policies")
	flag.Parse()
	if *node == "" || *table == "" || *kubeconfig == "" || flag.NArg() > 0 {
		return fmt.Errorf("want -node, -table, -kubeconfig and no arguments; -help lists the flags")
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("read the credential: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make the API's client: %w", err)
	}
	nft, err := knftables.New(knftables.InetFamily, *table)
	if err != nil {
		return fmt.Errorf("prepare nft: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return netpolicy.Run(ctx, netpolicy.Options{
		Node: *node, Client: client, NFT: nft, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}
