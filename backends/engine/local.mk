# What every backend does alike, over the ledger and a native table: linked into each backend.
noinst_LTLIBRARIES += %D%/libengine.la
%C%_libengine_la_SOURCES = %D%/args.c %D%/args.h %D%/bind.c %D%/carrier.c %D%/channel.c %D%/close.c %D%/close.h %D%/config.c %D%/config.h \
    %D%/conn.c %D%/control.c %D%/deadline.c %D%/device.c %D%/drain.c %D%/engine.h %D%/entry.c \
    %D%/entry.h %D%/epoch.c %D%/event.c %D%/event.h %D%/exact.c %D%/ext.c %D%/fault.c %D%/fault.h %D%/footprint.c %D%/grant.c %D%/join.c %D%/lane.c %D%/quota.c %D%/quota.h \
    %D%/keys.h %D%/lane.h %D%/log.c %D%/long.c %D%/memlock.c %D%/mend.c %D%/native.h %D%/near.c %D%/news.c %D%/note.c %D%/notify.c %D%/notify.h %D%/objects.h %D%/offer.c %D%/one.c %D%/op.c %D%/open.c %D%/parts.h %D%/peer.c \
    %D%/poll.c %D%/pool.h %D%/rails.c %D%/region.c %D%/remote.c %D%/renew.c %D%/renew.h %D%/room.c %D%/short.h %D%/settle.c %D%/settle.h %D%/slice.c %D%/state.c \
    %D%/state.h %D%/step.c %D%/transfer.c %D%/transfer.h %D%/waiting.c %D%/window.c %D%/wish.c %D%/wire.c %D%/wire.h
%C%_libengine_la_LIBADD = backends/ledger/libledger.la
