// Package report holds what a bench measured: samples with their medians and spread, what they are
// compared with, and the goal. It writes them as a table for people and as JSON for programs.
//
// How the samples come about is package bench's matter.
package report
