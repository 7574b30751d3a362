package demo

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/worker"
)

// The tools for planning a trip invent what they say: the same arguments give the same answer. Each has two knobs, so
// that a plan can show what becomes of slow and of broken tools.
type knobs struct {
	DelayMs int64  `json:"delay_ms"`
	Fail    string `json:"fail"`
}

// wait takes as long as the knobs say, tells how far it is, and then fails if it is to.
func (k knobs) wait(ctx context.Context) error {
	if k.DelayMs < 0 || k.DelayMs > 60_000 {
		return invalid("/delay_ms", "a number from 0 to 60000", fmt.Sprint(k.DelayMs))
	}
	if err := k.sleep(ctx); err != nil {
		return err
	}
	switch k.Fail {
	case "":
		return nil
	case "transient":
		return fault.New(fault.Upstream, "the service behind it does not answer, as you asked")
	case "permanent":
		return fault.New(fault.Failed, "it fails for good, as you asked")
	}
	return invalid("/fail", "transient, permanent or empty", k.Fail)
}

func (k knobs) sleep(ctx context.Context) error {
	if k.DelayMs == 0 {
		return nil
	}
	start, total := time.Now(), time.Duration(k.DelayMs)*time.Millisecond
	end := time.NewTimer(total)
	defer end.Stop()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-end.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			worker.Progress(ctx, float64(time.Since(start).Milliseconds()), float64(k.DelayMs), "taking its time")
		}
	}
}

// dice is a number from 0 to n-1 that depends on the words alone.
func dice(n int, words ...string) int {
	h := fnv.New32a()
	for _, w := range words {
		_, _ = h.Write([]byte(strings.ToLower(w) + "\x00")) // a hash does not fail
	}
	return int(h.Sum32() % uint32(n))
}

type flightArgs struct {
	knobs
	From string `json:"from"`
	To   string `json:"to"`
	Date string `json:"date"`
}

type flight struct {
	ID      string `json:"id"`
	From    string `json:"from"`
	To      string `json:"to"`
	Departs string `json:"departs"` // HH:MM
	Price   int    `json:"price"`   // in euros
}

type flightResult struct {
	Flights []flight `json:"flights"` // the cheapest first
	Cached  bool     `json:"cached,omitempty"`
}

func searchFlights(ctx context.Context, args flightArgs) (flightResult, error) {
	return flightResult{Flights: args.flights(3)}, args.wait(ctx)
}

// cachedFlights knows only the one that was cheapest.
func cachedFlights(ctx context.Context, args flightArgs) (flightResult, error) {
	return flightResult{Flights: args.flights(3)[:1], Cached: true}, args.wait(ctx)
}

func (a flightArgs) flights(n int) []flight {
	list := make([]flight, n)
	for i := range list {
		roll := func(n int, what string) int { return dice(n, a.From, a.To, a.Date, what, fmt.Sprint(i)) }
		list[i] = flight{
			ID:      fmt.Sprintf("TB%d", 101+100*i+roll(99, "id")),
			From:    a.From,
			To:      a.To,
			Departs: fmt.Sprintf("%02d:%02d", 6+roll(16, "hour"), 5*roll(12, "minute")),
			Price:   60 + roll(340, "price"),
		}
	}
	slices.SortStableFunc(list, func(x, y flight) int { return cmp.Compare(x.Price, y.Price) })
	return list
}

type hotelArgs struct {
	knobs
	City   string `json:"city"`
	Nights int    `json:"nights"`
}

type hotel struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	City  string `json:"city"`
	Price int    `json:"price"` // of all nights, in euros
}

type hotelResult struct {
	Hotels []hotel `json:"hotels"` // the cheapest first
	Cached bool    `json:"cached,omitempty"`
}

func searchHotels(ctx context.Context, args hotelArgs) (hotelResult, error) {
	return hotelResult{Hotels: args.hotels()}, args.wait(ctx)
}

func cachedHotels(ctx context.Context, args hotelArgs) (hotelResult, error) {
	return hotelResult{Hotels: args.hotels()[:1], Cached: true}, args.wait(ctx)
}

func (a hotelArgs) hotels() []hotel {
	var list []hotel
	for i, name := range []string{"Harbour", "Old Town", "Station"} {
		list = append(list, hotel{
			ID:    fmt.Sprintf("H%d", 11+20*i+dice(20, a.City, "id", name)),
			Name:  "Hotel " + name,
			City:  a.City,
			Price: max(a.Nights, 1) * (55 + dice(160, a.City, "price", name)),
		})
	}
	slices.SortStableFunc(list, func(x, y hotel) int { return cmp.Compare(x.Price, y.Price) })
	return list
}

type weatherArgs struct {
	knobs
	City string `json:"city"`
	Date string `json:"date"`
}

type weatherResult struct {
	City    string `json:"city"`
	Sky     string `json:"sky"`
	Celsius int    `json:"celsius"`
}

func weather(ctx context.Context, args weatherArgs) (weatherResult, error) {
	skies := []string{"clear", "some clouds", "overcast", "rain", "wind"}
	return weatherResult{args.City, skies[dice(len(skies), args.City, args.Date, "sky")], 8 + dice(22, args.City, args.Date, "celsius")}, args.wait(ctx)
}

type bookArgs struct {
	knobs
	Flight    string `json:"flight"`
	Hotel     string `json:"hotel"`
	Traveller string `json:"traveller"`
}

type bookResult struct {
	Booking string `json:"booking"`
	Flight  string `json:"flight"`
	Hotel   string `json:"hotel,omitempty"`
}

// bookTrip changes nothing in truth; its manifest says that it does, as one that books would.
func bookTrip(ctx context.Context, args bookArgs) (bookResult, error) {
	id := fmt.Sprintf("BK%05d", dice(100_000, args.Flight, args.Hotel, args.Traveller))
	return bookResult{id, args.Flight, args.Hotel}, args.wait(ctx)
}
