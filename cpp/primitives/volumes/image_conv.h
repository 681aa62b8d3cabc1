// A convolution of images on the arrays that people hold, by whichever of two ways is expected to
// be faster: on blocks of channels, into which images are brought and back (conv/plain_conv.h), or
// as a product of matrices on the images as they lie (volume_conv.h). Blocks cost a copy of
// everything, and leave lanes empty where filters are few; a filter of one pixel is a product of
// matrices as it stands.
#pragma once

#include <memory>
#include <mutex>

namespace dlprim {

class PlainConv;
class VolumeConv;
struct ConvForward;         // conv/conv2d.h
struct ConvSpec;            // conv/conv_pass.h
struct PlainConvGradients;  // conv/plain_conv.h

class ImageConv {
public:
    explicit ImageConv(const ConvSpec& spec);
    ImageConv(const ImageConv&) = delete;
    ImageConv& operator=(const ImageConv&) = delete;
    ~ImageConv();

    const PlainConv& on_blocks() const { return *on_blocks_; }

    // As those of PlainConv. The same bits for any number of threads.
    void forward(const ConvForward& tensors) const;
    void backward(const PlainConvGradients& tensors) const;

private:
    // Null where blocks are expected to be faster.
    const VolumeConv* product() const;

    std::unique_ptr<const PlainConv> on_blocks_;
    mutable std::once_flag is_chosen_;
    mutable std::unique_ptr<const VolumeConv> product_ = nullptr;
};

}  // namespace dlprim
