// Command network-policy enforces NetworkPolicies on a node of a test's cluster; see package netpolicy.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/knftables"

	"github.com/nodevirt/nodevirt/test/cluster/cmd/internal/agent"
	"github.com/nodevirt/nodevirt/test/netpolicy"
)

func main() {
	node := flag.String("node", "", "the node's name")
	table := flag.String("table", "", "the name of the nftables table, of family inet")
	kubeconfig := flag.String("kubeconfig", "", "the file of a credential that may list all pods, namespaces and policies")
	required := []string{"node", "table", "kubeconfig"}
	os.Exit(agent.Run("network-policy", required, func(ctx context.Context, log *slog.Logger) error {
		return run(ctx, log, *node, *table, *kubeconfig)
	}))
}

func run(ctx context.Context, log *slog.Logger, node, table, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read the credential: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make the API's client: %w", err)
	}
	nft, err := knftables.New(knftables.InetFamily, table)
	if err != nil {
		return fmt.Errorf("prepare nft: %w", err)
	}
	return netpolicy.Run(ctx, netpolicy.Options{
		Node: node, Client: client, NFT: nft, Log: log,
	})
}
