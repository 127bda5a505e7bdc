package main

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const mostInFlight = 2000

type closedResult struct {
	Requests int     `json:"requests"`
	CPUUs    float64 `json:"cpu_us"` // of the server, a request
	WallUs   float64 `json:"wall_us"`
}

// Each connection sends its next request when it has the answer to the one before.
func closedLoop(asked *command) (*closedResult, error) {
	caller, err := newCaller(asked, nil)
	if err != nil {
		return nil, err
	}
	defer caller.close()
	if err := all(caller, asked.Connections, asked.WarmUp); err != nil {
		return nil, err
	}
	cpuBefore, err := cpuTime(asked.PID)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := all(caller, asked.Connections, asked.Requests); err != nil {
		return nil, err
	}
	wall := time.Since(began)
	cpuAfter, err := cpuTime(asked.PID)
	if err != nil {
		return nil, err
	}
	count := float64(asked.Requests) * 1000
	return &closedResult{
		Requests: asked.Requests,
		CPUUs:    float64(cpuAfter-cpuBefore) / count,
		WallUs:   float64(wall.Nanoseconds()) / count,
	}, nil
}

func all(caller *caller, connections, requests int) error {
	var (
		group sync.WaitGroup
		left  atomic.Int64
		once  sync.Once
		first error
	)
	left.Store(int64(requests))
	for range connections {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				if err := caller.call(); err != nil {
					once.Do(func() { first = err })
					left.Store(0)
				}
			}
		})
	}
	group.Wait()
	return first
}

// The CPU time of another process, as clock_getcpuclockid(3) names its clock; like the sum of
// utime and stime in /proc/PID/stat, in nanoseconds in place of hundredths of a second.
func cpuTime(pid int) (int64, error) {
	if pid == 0 {
		return 0, nil
	}
	const scheduled = 2
	clock := uintptr(^pid<<3 | scheduled)
	var spec syscall.Timespec
	_, _, errno := syscall.Syscall(
		syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&spec)), 0,
	)
	if errno != 0 {
		return 0, fmt.Errorf("the CPU clock of process %d: %w", pid, errno)
	}
	return spec.Nano(), nil
}

type openResult struct {
	Sent    int     `json:"sent"`
	Failed  int     `json:"failed"`
	Unsent  int     `json:"unsent"` // too many were on their way
	Error   string  `json:"first_error"`
	P50Ms   float64 `json:"p50_ms"`
	P99Ms   float64 `json:"p99_ms"`
	P999Ms  float64 `json:"p999_ms"`
	WorstMs float64 `json:"worst_ms"`
}

// Requests leave at planned times whether or not answers have come; a late start counts.
func openLoop(asked *command) (*openResult, error) {
	caller, err := newCaller(asked, nil)
	if err != nil {
		return nil, err
	}
	defer caller.close()
	if err := all(caller, max(asked.Connections, 1), max(asked.WarmUp, 1)); err != nil {
		return nil, err
	}
	pace := newPace(asked.Rate, asked.DurationS)
	pace.run(caller.call)
	return pace.result(), nil
}

type pace struct {
	rate, durationS float64
	stopped         atomic.Bool
	inFlight        atomic.Int64
	lock            sync.Mutex
	latencies       []time.Duration
	failed, unsent  int
	firstError      string
}

func newPace(rate, durationS float64) *pace {
	return &pace{rate: rate, durationS: durationS}
}

func (p *pace) run(call func() error) {
	began := time.Now()
	total := math.Inf(1)
	if p.durationS > 0 {
		total = p.rate * p.durationS
	}
	var group sync.WaitGroup
	for index := 0.0; index < total && !p.stopped.Load(); index++ {
		planned := began.Add(time.Duration(index / p.rate * float64(time.Second)))
		time.Sleep(time.Until(planned))
		if p.inFlight.Load() >= mostInFlight {
			p.note(0, nil, false)
			continue
		}
		p.inFlight.Add(1)
		group.Go(func() {
			defer p.inFlight.Add(-1)
			err := call()
			p.note(time.Since(planned), err, true)
		})
	}
	group.Wait()
}

func (p *pace) note(latency time.Duration, err error, sent bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	switch {
	case !sent:
		p.unsent++
	case err != nil:
		p.failed++
		if p.firstError == "" {
			p.firstError = err.Error()
		}
	default:
		p.latencies = append(p.latencies, latency)
	}
}

func (p *pace) result() *openResult {
	p.lock.Lock()
	defer p.lock.Unlock()
	slices.Sort(p.latencies)
	return &openResult{
		Sent:    len(p.latencies) + p.failed,
		Failed:  p.failed,
		Unsent:  p.unsent,
		Error:   p.firstError,
		P50Ms:   p.quantile(0.5),
		P99Ms:   p.quantile(0.99),
		P999Ms:  p.quantile(0.999),
		WorstMs: p.quantile(1),
	}
}

func (p *pace) quantile(part float64) float64 {
	if len(p.latencies) == 0 {
		return 0
	}
	index := max(int(math.Ceil(part*float64(len(p.latencies))))-1, 0)
	return float64(p.latencies[index].Microseconds()) / 1000
}
