package cri

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// Dial returns a connection to a CRI socket, such as containerd's, with the options
// that New needs, and more. It returns at once, and reconnects whenever the server has restarted.
func Dial(socket string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, append(dialOptions(), more...)...)
}

// Retry returns the option to reconnect within a second, which suits a server on
// the same node. By default gRPC and containerd's client wait longer after each failure.
func Retry() grpc.DialOption {
	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = 50*time.Millisecond, time.Second
	return grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second})
}

func dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		Retry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithIdleTimeout(0),
	}
}
