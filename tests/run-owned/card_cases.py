"""Rows 23 to 32, 50 and 51: cards, NVML and telemetry."""
import os
import time

from bench import UUIDS, WAIT, Bench, check, script, wait_for
from cases import case

SHOW = 'import os; print(os.environ["CUDA_VISIBLE_DEVICES"], os.environ.get("CUDA_DEVICE_ORDER"))'


def refused(bench, text, **kwargs):
    code, _, err = bench.run('print("ran")', **kwargs)
    check(code == 125 and text in err, f'expected 125 and "{text}", got {code}: {err}')
    check(not os.path.exists(bench.log) and os.listdir(bench.path('locks')) == [], 'nothing is locked or written')
    return err


@case('23', 'an unknown UUID is refused and the present ones are listed')
def unknown(bench):
    err = refused(bench, 'present:', gpus='c4e7a371,deadbeef')
    check(all(uuid in err for uuid in UUIDS), err)


@case('24', 'a prefix of two cards is refused and the candidates are listed')
def ambiguous(bench):
    twin = UUIDS[0][:12] + '-9999-0000-0000-000000000000'
    bench.set_cards(script(cards=3, card2__uuid=twin))
    err = refused(bench, '2 cards', gpus='c4e7a371,7744b44b')
    check(UUIDS[0] in err and twin in err, err)
    check(bench.run('pass', gpus='c4e7a371-1111,7744b44b')[0] == 0, 'more digits help')


@case('24', 'fewer than eight digits are refused')
def too_short(bench):
    refused(bench, '8 hex digits', gpus='c4e7a37,7744b44b')


@case('25', 'one card twice, solo with two, pair with one: usage')
def counts(bench):
    refused(bench, 'two different cards', gpus='c4e7a371,c4e7a371')
    refused(bench, 'a second card', gpus='c4e7a371,GPU-c4e7a371')
    refused(bench, '1 of them', mode='solo', gpus='c4e7a371,7744b44b')
    refused(bench, '2 of them', gpus='c4e7a371')


@case('26', 'the order of the UUIDs is kept, whatever the order of the cards')
def order(bench):
    bench.set_cards(script(card0__uuid=UUIDS[1], card1__uuid=UUIDS[0]))
    _, out, _ = bench.run(SHOW)
    check(out.split()[0].decode() == ','.join(UUIDS), f'rank order: {out}')


@case('26', '--expect-pci refuses cards in the wrong order')
def wrong_order(bench):
    refused(bench, 'PCI address of rank 0', options=('--expect-pci', '61:00.0,41:00.0'))
    code, _, err = bench.run('pass', options=('--expect-pci', '41:00.0,0000:61:00.0'))
    check(code == 0, err)


@case('27', 'a card that vanishes: telemetry says so, the job goes on')
def card_lost(bench):
    process = bench.start_waiting(bench.patient_job(4))
    bench.set_cards(script(card1__code=15))
    wait_for(lambda: 'telemetry lost' in bench.log_text(), 'the log says lost')
    bench.release()
    bench.finish(process, 4)
    summary = bench.expect_verdict('child')
    warnings = summary['warnings']
    check(summary['is_telemetry_lost'] and any('lost' in text for text in warnings), str(warnings))
    check(any(card['error'] for sample in bench.samples() for card in sample['cards']), 'samples tell it')


@case('27', '--require-telemetry ends the job when a card vanishes')
def card_lost_required(bench):
    process = bench.start_waiting(options=('--require-telemetry',))
    bench.set_cards(script(card1__code=15))
    bench.finish(process, 125)
    bench.expect_verdict('telemetry_lost')


@case('28', 'a MIG instance is refused')
def mig(bench):
    refused(bench, 'MIG', gpus='MIG-c4e7a371-1111-2222-3333-444455556666,7744b44b')


@case('29', "the caller's CUDA_VISIBLE_DEVICES is overridden and both are logged; the device order is removed")
def visible_devices(bench):
    env = dict(os.environ, CUDA_VISIBLE_DEVICES='1,0', CUDA_DEVICE_ORDER='PCI_BUS_ID')
    code, out, _ = bench.run(SHOW, env=env)
    check(code == 0 and out.decode().split() == [','.join(UUIDS), 'None'], f'{code} {out}')
    log = bench.log_text()
    check('CUDA_VISIBLE_DEVICES=' + ','.join(UUIDS) in log and 'of the caller was 1,0' in log, log)


@case('30', 'no NVML library: refused; --no-telemetry with whole UUIDs runs with a warning')
def no_library(bench):
    os.unlink(bench.library)
    refused(bench, 'NVML')
    options = ('--no-telemetry',)
    refused(bench, 'whole UUIDs', options=options)
    code, out, err = bench.run(SHOW, gpus=','.join(UUIDS), options=options)
    check(code == 0 and out.split()[0].decode() == ','.join(UUIDS) and 'nobody has checked' in err, f'{code} {err}')
    check(not bench.summary()['cards'][0]['is_verified'], 'the summary says that nothing was verified')


@case('30', 'a library without the newer functions still gives what it can')
def old_library(bench):
    old = Bench(bench.bin_dir, 'fake_nvml_old.so')
    try:
        check(old.run('pass')[0] == 0, 'runs')
        card = old.samples()[0]['cards'][0]
        check(card['power_mw'] == 150000 and card['clock_reasons'] == 4 and card['energy_mj'] is None, str(card))
    finally:
        old.close()


@case('30', 'a library without a needed function is refused by its name')
def broken_library(bench):
    broken = Bench(bench.bin_dir, 'fake_nvml_broken.so')
    try:
        refused(broken, 'nvmlDeviceGetUUID')
    finally:
        broken.close()


@case('31', 'NVML that hangs at the start is given up in time')
def hang_at_start(bench):
    bench.set_cards(script(init__hang_ms=60000))
    begin = time.monotonic()
    refused(bench, 'within 400 ms', options=('--nvml-timeout-ms', '400'))
    bench.check_time(time.monotonic() - begin < 5, 'it waits for NVML')


@case('31', 'NVML that hangs later is stale and delays neither the permit nor the end')
def hang_later(bench):
    process = bench.start_waiting(options=('--stale-ms', '300'))
    bench.set_cards(script(card0__hang_ms=60000))
    wait_for(lambda: 'stale' in bench.log_text(), 'the log says stale')
    begin = time.monotonic()
    bench.set_permit('owner=SOMEBODY\n')
    bench.finish(process, 123)
    # The call sleeps for a minute.
    check(time.monotonic() - begin < 50, 'the end waits for NVML')
    bench.check_time(time.monotonic() - begin < 2.5, 'the end waits for NVML')


@case('31', '--require-telemetry ends the job when NVML hangs')
def hang_required(bench):
    process = bench.start_waiting(options=('--stale-ms', '300', '--require-telemetry'))
    bench.set_cards(script(card0__hang_ms=60000))
    bench.finish(process, 125)
    bench.expect_verdict('telemetry_lost')


@case('32', 'a driver that was upgraded under a running system is explained in words')
def mismatch(bench):
    bench.set_cards(script(init__code=18))
    refused(bench, 'upgraded while the system ran')


@case('32', 'a driver that is not loaded is explained in words')
def not_loaded(bench):
    bench.set_cards(script(init__code=9))
    refused(bench, 'not loaded')


@case('50', 'grown NVLink counters are reported, and fail the run when asked to')
def link_errors(bench):
    bench.set_cards(script(card0__link1__replay='5,7', card1__link0__crc_flit='0,1'))
    check(bench.run('pass')[0] == 0, 'reported only')
    summary = bench.summary()
    check([card['telemetry']['link_errors'] for card in summary['cards']] == [2, 1], str(summary['cards']))
    delta = summary['cards'][0]['telemetry']['links'][1]['replay']
    check(delta == {'begin': 5, 'end': 7, 'delta': 2}, str(delta))
    code, _, _ = bench.run('pass', options=('--max-nvlink-errors', '1'), log=bench.path('second'))
    check(code == 125 and bench.summary(bench.path('second'))['verdict'] == 'nvlink_errors', str(code))
    code, _, _ = bench.run('pass', options=('--max-nvlink-errors', '2'), log=bench.path('third'))
    check(code == 0, 'two are allowed')


@case('B28', 'totals that stay at 0 while a link counts do not hide it; totals count where links do not')
def totals_and_links(bench):
    bench.set_cards(script(card0__link0__replay='0,7', card0__total__replay=0, card1__total__recovery='1,4',
                           **{f'card1__link{link}__{counter}': None for link in range(2)
                              for counter in ('replay', 'recovery', 'crc_flit', 'crc_data')}))
    check(bench.run('pass')[0] == 0, 'runs')
    errors = [card['telemetry']['link_errors'] for card in bench.summary()['cards']]
    check(errors == [7, 3], str(errors))


@case('51', 'a compute process on a card is refused with --exclusive only')
def foreign(bench):
    bench.set_cards(script(card1__processes=os.getpid()))
    code, out, err = bench.run('print("ran")', options=('--exclusive',))
    check(code == 125 and f'pid {os.getpid()}' in err and out == b'', f'{code} {out} {err}')
    check(not bench.is_locked(), 'the locks are free')
    check(bench.run('pass', log=bench.path('second'))[0] == 0, 'allowed without')


@case('-', 'telemetry: one line per period with every field, maxima and shares in the summary')
def telemetry(bench):
    bench.set_cards(script(card0__reasons='0x4,0x4,0x0'))
    check(bench.run('import time; time.sleep(1)')[0] == 0, 'runs')
    samples = bench.samples()
    check(len(samples) >= 2, f'{len(samples)} samples')
    bench.check_time(9 <= len(samples) <= 13, f'{len(samples)} samples of 100 ms in 1 s')
    card = samples[0]['cards'][0]
    for key in ('power_mw', 'power_average_mw', 'power_limit_mw', 'sm_clock_mhz', 'memory_clock_mhz',
                'temperature_c', 'pstate', 'clock_reasons', 'gpu_utilization_pct', 'memory_used_bytes'):
        check(isinstance(card[key], int), f'{key}: {card[key]}')
    check(card['memory_temperature_c'] is None and card['processes'] == [], 'absent is null, none is empty')
    summary = bench.summary()
    check(summary['power_sum_max_mw'] == 702000, str(summary['power_sum_max_mw']))
    total = summary['cards'][0]['telemetry']
    check(total['max']['power_mw'] == 351000, str(total))
    bench.check_time(0 < total['clock_reason_share']['sw_power_cap'] < 0.5, str(total))


@case('B29', 'NVML that turns to unknown errors: the job goes on and telemetry says so')
def unknown_error(bench):
    process = bench.start_waiting(bench.patient_job(0))
    bench.set_cards(script(card0__code=999))
    wait_for(lambda: 'telemetry lost' in bench.log_text(), 'the log says lost')
    bench.release()
    bench.finish(process, 0)
    check(bench.summary()['is_telemetry_lost'], 'lost')


@case('-', '--dry-run shows the plan, takes nothing and ends like the real run')
def dry_run(bench):
    code, out, err = bench.run('print("ran")', options=('--dry-run',))
    check(code == 0 and UUIDS[0].encode() in out and b'(free)' in out and b'ran' in out, f'{code} {out} {err}')
    check(not os.path.exists(bench.log) and os.listdir(bench.path('locks')) == [], 'nothing is left')
    process = bench.start_waiting(WAIT, log=bench.path('first'))
    code, out, err = bench.run('print("ran")', options=('--dry-run',))
    check(code == 125 and f'pid {process.pid}' in err, f'{code} {err}')
    bench.set_permit('')
    bench.finish(process, 123)
    check(bench.run('print("ran")', options=('--dry-run',))[0] == 123, 'no permit')
